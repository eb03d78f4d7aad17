"""Compose file and manifests fit the published schemas, and refer only to what exists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.deploy.files import COMPOSE, DEPLOY, MANIFESTS, containers, documents, objects

SCHEMAS = Path(__file__).parent / "schemas"
KUBERNETES = sorted(SCHEMAS.glob("kubernetes-*.json"))
KEDA = SCHEMAS / "keda-scaledobject.json"


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
    for place, pod, container in containers():
        for entry in container.get("env", ()):
            if reference := entry.get("valueFrom", {}).get("secretKeyRef"):
                assert reference["key"] in held["Secret", reference["name"]], place
        for source in container.get("envFrom", ()):
            assert ("ConfigMap", source["configMapRef"]["name"]) in held, place
        for volume in pod.get("volumes", ()):
            if secret := volume.get("secret"):
                keys = {item["key"] for item in secret["items"]}
                assert keys <= held["Secret", secret["secretName"]], place
        mounted = {mount["name"] for mount in container.get("volumeMounts", ())}
        assert mounted == {volume["name"] for volume in pod.get("volumes", ())}, place


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
