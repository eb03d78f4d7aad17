"""Compose file and manifests fit the published schemas, and refer only to what exists."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.deploy.files import ADDITIONS, COMPOSE, DEPLOY, MANIFESTS, containers, documents, objects
from tests.deploy.keda_schema import scaled_object_schema

SECRET = DEPLOY / "kubernetes" / "setup" / "secret.yaml"
SCHEMAS = Path(__file__).parent / "schemas"
KUBERNETES = sorted(SCHEMAS.glob("kubernetes-*.json"))
KEDA = SCHEMAS / "keda-scaledobject.json"
PROMETHEUS_TRIGGER = {
    "type": "object",
    "additionalProperties": False,
    "required": ["serverAddress", "query", "threshold"],
    "properties": {
        "serverAddress": {"pattern": "^https?://"},
        "query": {},
        "threshold": {"pattern": r"^\d+$"},
        "activationThreshold": {"pattern": r"^\d+$"},
        "ignoreNullValues": {"enum": ["true", "false"]},
    },
}
"""Ours, after KEDA's documentation of that scaler, of what we use: to KEDA's own schema any words will do."""


def faults(schema: dict[str, Any], document: Any) -> list[str]:
    found = Draft202012Validator(schema).iter_errors(document)
    return [f"{error.json_path}: {error.message}" for error in found]


def kind_schema(path: Path, document: dict[str, Any]) -> dict[str, Any]:
    name = f"{document['apiVersion']}/{document['kind']}"
    if name == "keda.sh/v1alpha1/ScaledObject":
        schema: dict[str, Any] = json.loads(KEDA.read_text(encoding="utf-8"))
        return schema
    everything = json.loads(path.read_text(encoding="utf-8"))
    assert name in everything["kinds"], f"no schema of {name}: add it to vendor_schemas.py"
    return {**everything["kinds"][name], "$defs": everything["$defs"]}


def test_compose_file_fits_the_specification() -> None:
    schema = json.loads((SCHEMAS / "compose-spec.json").read_text(encoding="utf-8"))
    [document] = documents(COMPOSE)
    assert faults(schema, document) == []
    document["services"]["server"]["comand"] = []
    assert faults(schema, document) != [], "the schema takes anything"


@pytest.mark.parametrize("path", ADDITIONS, ids=lambda path: path.name)
def test_addition_fits_the_compose_file(path: Path) -> None:
    schema = json.loads((SCHEMAS / "compose-spec.json").read_text(encoding="utf-8"))
    [base], [addition] = documents(COMPOSE), documents(path)
    assert faults(schema, addition) == []
    changed = {name: service for name, service in addition["services"].items() if "image" not in service}
    assert set(changed) == {"server", "scheduler", "worker"} <= set(base["services"])
    assert not set(addition["services"]) - set(changed) & set(base["services"])
    used = {
        each if isinstance(each, str) else each["source"]
        for service in addition["services"].values()
        for each in service["secrets"]
    }
    assert used == set(addition["secrets"])
    for service in changed.values():
        assert service["environment"] == {"DALSEGNO_BROKER_FILE": "/run/secrets/broker"}


@pytest.mark.parametrize("version", KUBERNETES, ids=lambda path: path.stem)
@pytest.mark.parametrize(("place", "document"), list(objects()), ids=[place for place, _ in objects()])
def test_manifest_fits_the_schema(version: Path, place: str, document: dict[str, Any]) -> None:
    schema = kind_schema(version, document)
    assert faults(schema, document) == []
    assert faults(schema, {**document, "sepc": {}}) != [], "the schema takes anything"


def test_a_misspelt_field_deep_inside_is_found() -> None:
    [deployment] = [each for place, each in objects() if place == "worker.yaml:Deployment"]
    deployment["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["periodSecond"] = 5
    for version in KUBERNETES:
        [fault] = faults(kind_schema(version, deployment), deployment)
        assert "periodSecond" in fault


def test_a_scaled_object_is_checked_as_deeply_as_the_cluster_would() -> None:
    [scaled] = [each for place, each in objects() if place == "keda.yaml:ScaledObject"]
    policies = scaled["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"][
        "policies"
    ]
    policies[0]["periodSecond"] = policies[0].pop("periodSeconds")
    told = faults(kind_schema(KEDA, scaled), scaled)
    assert len(told) == 2
    assert any("'periodSecond' was unexpected" in fault for fault in told)
    assert any("'periodSeconds' is a required property" in fault for fault in told)


def test_models_are_read_as_a_schema_and_what_is_not_understood_is_not_passed_over() -> None:
    models = """
class Inner(BaseModel):
    most: Annotated[Optional[int], Field(alias="mostOfThem", ge=1)] = None
    name: str

class ScaledObject(Resource):
    spec: List[Inner]
    status: Optional[Unknown] = None
"""
    spec = scaled_object_schema(models)["properties"]["spec"]
    assert faults(spec, [{"name": "a", "mostOfThem": 1}]) == []
    assert [fault.partition(":")[0] for fault in faults(spec, [{"mostOfThem": 0}])] == [
        "$[0]",
        "$[0].mostOfThem",
    ]
    with pytest.raises(ValueError, match="not known here: Set"):
        scaled_object_schema(models.replace("List[", "Set["))


def test_what_keda_asks_prometheus_has_the_names_that_its_scaler_reads() -> None:
    [scaled] = [each for place, each in objects() if place == "keda.yaml:ScaledObject"]
    [trigger] = scaled["spec"]["triggers"]
    assert trigger["type"] == "prometheus"
    assert faults(PROMETHEUS_TRIGGER, trigger["metadata"]) == []


def test_every_manifest_is_looked_at() -> None:
    """The adapter's configuration is no object; everything else is."""
    named = {place.partition(":")[0] for place, _ in objects()}
    assert named == {path.name for path in MANIFESTS} - {"adapter.yaml"}
    assert len(KUBERNETES) == 2


def test_objects_live_in_one_namespace_and_names_are_unique() -> None:
    named = [(each["kind"], each["metadata"]["name"]) for _, each in objects()]
    assert len(set(named)) == len(named)
    assert {each["metadata"].get("namespace") for _, each in objects() if each["kind"] != "Namespace"} == {
        "dalsegno"
    }


def test_selectors_fit_the_pods_they_mean() -> None:
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for _, each in objects()
        if each["kind"] == "Deployment"
    }
    for _, each in objects():
        name, selector = each["metadata"]["name"], each.get("spec", {}).get("selector", {})
        wanted = selector.get("matchLabels", selector)
        if wanted:
            assert wanted.items() <= pods[name].items(), name
    for _, each in objects():
        target = each.get("spec", {}).get("scaleTargetRef")
        assert target is None or target["name"] in pods


def test_pods_use_secrets_and_settings_that_exist() -> None:
    held = {
        (each["kind"], each["metadata"]["name"]): {*each.get("data", {}), *each.get("stringData", {})}
        for _, each in objects()
        if each["kind"] in ("Secret", "ConfigMap")
    }
    to_uncomment = set(re.findall(r"^  #([a-z-]+): ", SECRET.read_text(encoding="utf-8"), re.MULTILINE))
    for place, pod, container in containers():
        for entry in container.get("env", ()):
            if reference := entry.get("valueFrom", {}).get("secretKeyRef"):
                known = to_uncomment if reference.get("optional") else held["Secret", reference["name"]]
                assert reference["key"] in known, place
        for source in container.get("envFrom", ()):
            assert ("ConfigMap", source["configMapRef"]["name"]) in held, place
        for volume in pod.get("volumes", ()):
            if secret := volume.get("secret"):
                keys = {item["key"] for item in secret["items"]}
                assert keys <= held["Secret", secret["secretName"]], place
        mounted = {mount["name"] for mount in container.get("volumeMounts", ())}
        assert mounted == {volume["name"] for volume in pod.get("volumes", ())}, place


def test_every_role_takes_the_urls_of_brokers_from_the_secret() -> None:
    for place, _, container in containers():
        if container["name"] == "migrate":
            continue
        taken = {
            entry["name"]: entry["valueFrom"]["secretKeyRef"]
            for entry in container["env"]
            if entry["name"] in ("DALSEGNO_BROKER", "DALSEGNO_REDIS")
        }
        assert taken == {
            "DALSEGNO_BROKER": {"name": "dalsegno", "key": "broker", "optional": True},
            "DALSEGNO_REDIS": {"name": "dalsegno", "key": "redis", "optional": True},
        }, place


def test_no_container_has_privileges() -> None:
    for place, pod, container in containers():
        assert pod["securityContext"]["runAsNonRoot"] is True, place
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, place
    image = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert "\nUSER 10001:10001\n" in image


@pytest.mark.parametrize("path", [COMPOSE, DEPLOY / "systemd" / "dalsegno.env"], ids=lambda path: path.name)
def test_the_direct_url_is_there_to_be_uncommented(path: Path) -> None:
    """Set without a pooler it would only be a second place to change the database in."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    [place] = [number for number, line in enumerate(lines) if line.startswith("#DALSEGNO_LISTEN")]
    assert "Only behind a pooler" in lines[place - 1]
    assert not any(line.startswith("DALSEGNO_LISTEN") for line in lines)
