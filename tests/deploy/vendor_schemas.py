"""Renews the schemas beside this file from the packages that carry them.

    pip download --no-deps kubernetes-validate check-jsonschema cloudcoil.models.keda
    python -m tests.deploy.vendor_schemas kubernetes_validate-*.whl check_jsonschema-*.whl cloudcoil_models_keda-*.whl

Of the Kubernetes schemas only the kinds in ``KINDS`` are kept, with what they refer to and without descriptions, for
the oldest version we support and the newest that the package has. The Compose schema is kept whole. That of KEDA is
made of models which were made of KEDA's own definition of that version.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from tests.deploy.keda_schema import scaled_object_schema

FOLDER = Path(__file__).parent / "schemas"
KINDS = {
    "v1/Namespace": "namespace-v1",
    "v1/Secret": "secret-v1",
    "v1/ConfigMap": "configmap-v1",
    "v1/Service": "service-v1",
    "apps/v1/Deployment": "deployment-apps-v1",
    "batch/v1/Job": "job-batch-v1",
    "policy/v1/PodDisruptionBudget": "poddisruptionbudget-policy-v1",
    "autoscaling/v2/HorizontalPodAutoscaler": "horizontalpodautoscaler-autoscaling-v2",
}
VERSIONS = ("v1.30.0", "v1.37.0")
COMPOSE = "check_jsonschema/builtin_schemas/vendor/compose-spec.json"
KEDA = "cloudcoil/models/keda/v1alpha1.py"
KEDA_COMMENT = (
    "The ScaledObject of KEDA {version} without its status, made by tests/deploy/vendor_schemas.py of the models in"
    " {package}, which were generated from KEDA's custom resource definition. Both: Apache License, Version 2.0; see"
    " NOTICE. What a trigger's metadata may hold is no part of that definition."
)


def main(kubernetes: str, compose: str, keda: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    with ZipFile(kubernetes) as package:
        for version in VERSIONS:
            schema = json.dumps(kubernetes_schema(package, version), indent=1, sort_keys=True)
            (FOLDER / f"kubernetes-{version}.json").write_text(schema + "\n", encoding="utf-8")
    with ZipFile(compose) as package:
        (FOLDER / "compose-spec.json").write_bytes(package.read(COMPOSE))
    schema = json.dumps(keda_schema(Path(keda)), indent=1)
    (FOLDER / "keda-scaledobject.json").write_text(schema + "\n", encoding="utf-8")


def keda_schema(path: Path) -> dict[str, Any]:
    """The package's version is KEDA's, and a count of its own."""
    name, package_version = path.name.split("-")[:2]
    comment = KEDA_COMMENT.format(
        version=package_version.rpartition(".")[0], package=f"{name.replace('_', '.')} {package_version}"
    )
    with ZipFile(path) as package:
        schema = scaled_object_schema(package.read(KEDA).decode())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$comment": comment, **schema}


def kubernetes_schema(package: ZipFile, version: str) -> dict[str, Any]:
    """One document: each kind under ``kinds``, everything they refer to under ``$defs``."""

    def load(name: str) -> dict[str, Any]:
        path = f"kubernetes_validate/kubernetes-json-schema/{version}-local-strict/{name}.json"
        loaded: dict[str, Any] = json.loads(package.read(path))
        return loaded

    all_definitions = load("_definitions")["$defs"]
    kinds = {kind: bare(load(name)) for kind, name in KINDS.items()}
    needed: dict[str, Any] = {}
    waiting = list(references(kinds))
    while waiting:
        name = waiting.pop().rpartition("/")[2]
        if name not in needed:
            needed[name] = bare(all_definitions[name])
            waiting += references(needed[name])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "kinds": kinds, "$defs": needed}


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def bare(schema: Any, *, is_names: bool = False) -> Any:
    """Without prose, and with references that stay inside the document. Names of properties are no keywords."""
    if isinstance(schema, list):
        return [bare(value) for value in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for key, value in schema.items():
        if not is_names and (key in ("description", "$id", "$schema") or key.startswith("x-kubernetes-")):
            continue
        if key == "$ref" and not is_names:
            kept[key] = "#/$defs/" + value.rpartition("/")[2]
        else:
            kept[key] = bare(value, is_names=key == "properties" and not is_names)
    return kept


if __name__ == "__main__":
    main(*sys.argv[1:])
