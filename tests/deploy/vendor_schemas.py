"""Renews the schemas beside this file from the packages that carry them.

    pip download --no-deps kubernetes-validate check-jsonschema
    python tests/deploy/vendor_schemas.py kubernetes_validate-*.whl check_jsonschema-*.whl

Of the Kubernetes schemas only the kinds in ``KINDS`` are kept, with what they refer to and without descriptions, for
the oldest version we support and the newest that the package has. The Compose schema is kept whole.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

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


def main(kubernetes: str, compose: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    with ZipFile(kubernetes) as package:
        for version in VERSIONS:
            schema = json.dumps(kubernetes_schema(package, version), indent=1, sort_keys=True)
            (FOLDER / f"kubernetes-{version}.json").write_text(schema + "\n", encoding="utf-8")
    with ZipFile(compose) as package:
        (FOLDER / "compose-spec.json").write_bytes(package.read(COMPOSE))


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
