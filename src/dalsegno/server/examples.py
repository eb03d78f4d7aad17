"""Examples of requests and answers: every one of the document has one. What a schema says itself counts; the rest is
put together from its fields, with values that are usual for their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dalsegno.server.schemas.executions import EXAMPLE_ID

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
DEEPEST = 8
NOTHING = object()

USUAL: dict[str, Any] = {
    "action": "POST /v1/executions",
    "aliases": {"stable": 3},
    "alias": "stable",
    "approvers": ["ops"],
    "arrived": 1,
    "attempt": 1,
    "awaits": "task charge",
    "by": "ops",
    "caller": "ops",
    "cause": "No definition, execution, node type or blob of that name in this store.",
    "code": "DS-130",
    "concurrency": 8,
    "cron": "0 2 * * *",
    "cure": "Check the spelling and the store.",
    "definition": "5d1f2c9be0a7",
    "delivery_field": "",
    "delivery_header": "x-github-delivery",
    "description": "Builds what was pushed.",
    "detail": "answers within 2 ms",
    "error": None,
    "every": None,
    "execution": EXAMPLE_ID,
    "execution_id": EXAMPLE_ID,
    "expected": 2,
    "hash": "5d1f2c9be0a7",
    "header": "x-hub-signature-256",
    "headers": ["x-github-event"],
    "host": "10.0.0.7",
    "id": EXAMPLE_ID,
    "idempotency_key": "order-7",
    "input": {"name": "Ada"},
    "key": "ops",
    "kind": "graph",
    "line": 3,
    "message": "node 'greet' has no type",
    "methods": ["POST"],
    "name": "report",
    "next": None,
    "node": "greet",
    "open": ["'late'"],
    "output": {"greeting": "Hello, Ada!"},
    "parent": None,
    "pointer": "/nodes/0/type",
    "prefix": "sha256=",
    "rule": "unknown-type",
    "signal": "approve",
    "state": "RUNNING",
    "text": 'const paid = await Task.run("charge", order)',
    "timestamp": "",
    "warning": None,
    "path": "/v1/executions",
    "queue": "default",
    "relation": None,
    "results": {"greet": {"greeting": "Hello, Ada!"}},
    "scope": "",
    "sentence": "node 'both' waits for 1 more of 2 branches: 'late'",
    "source": "workflow report(inputs) {\n  return inputs\n}\n",
    "tags": {"env": "production"},
    "task": "resize",
    "timezone": "Europe/Berlin",
    "url": "/v1/hooks/github/push",
    "version": 3,
    "worker": "worker-1",
    "workflow": "report",
}
"""By the name of a field, where its schema allows it."""
TEXTS = {
    "text/html": "<!doctype html><title>Approve?</title> …",
    "text/plain": '# TYPE dalsegno_executions_total counter\ndalsegno_executions_total{state="COMPLETED"} 42.0\n',
}


def complete(document: dict[str, Any]) -> None:
    """Gives every body of a request, and of a 2xx answer, an example."""
    maker = _Maker(document.get("components", {}).get("schemas", {}))
    for operations in document["paths"].values():
        for operation in operations.values():
            for media, body in operation.get("requestBody", {}).get("content", {}).items():
                body.setdefault("example", maker.of(media, body.get("schema", {})))
            for status, answer in operation["responses"].items():
                if status.startswith("2"):
                    for media, body in answer.get("content", {}).items():
                        body.setdefault("example", maker.of(media, body.get("schema", {})))


class _Maker:
    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self.schemas = schemas

    def of(self, media: str, schema: Mapping[str, Any]) -> Any:
        if media not in (JSON, FORM):
            return TEXTS.get(media.partition(";")[0], "…")
        return self.made(schema)

    def made(self, schema: Mapping[str, Any], name: str = "", depth: int = 0) -> Any:
        if "$ref" in schema:
            return self.made(self.schemas[schema["$ref"].rpartition("/")[2]], name, depth)
        told = schema.get("example", schema.get("examples", [NOTHING])[0])
        if told is not NOTHING:
            return self._whole(told, schema, depth)
        if "const" in schema or "enum" in schema:
            return schema.get("const", schema.get("enum", [None])[0])
        if "anyOf" in schema:
            return self._one_of(schema, name, depth)
        usual = USUAL.get(name, NOTHING)
        if usual is not NOTHING and _is(usual, schema):
            return usual
        return self._by_type(schema, depth)

    def _whole(self, told: Any, schema: Mapping[str, Any], depth: int) -> Any:
        """The framework leaves out every null of an example, also of fields that are always there."""
        if not isinstance(told, dict) or "properties" not in schema:
            return told
        missing = [name for name in schema.get("required", ()) if name not in told]
        return {**told, **{name: self.made(schema["properties"][name], name, depth + 1) for name in missing}}

    def _one_of(self, schema: Mapping[str, Any], name: str, depth: int) -> Any:
        """Where nothing is allowed and usual, nothing."""
        choices = schema["anyOf"]
        may_be_none = any(each.get("type") == "null" for each in choices)
        if may_be_none and (depth > DEEPEST or USUAL.get(name, NOTHING) is None):
            return None
        return self.made(next(each for each in choices if each.get("type") != "null"), name, depth)

    def _by_type(self, schema: Mapping[str, Any], depth: int) -> Any:
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                return [self.made(schema.get("items", {}), "", depth + 1)] if depth <= DEEPEST else []
            case "string":
                return "2030-01-31T09:00:00Z" if schema.get("format") == "date-time" else "text"
            case "integer" | "number":
                return schema.get("default") or max(schema.get("minimum", 0), 1)
            case "boolean":
                return schema.get("default", True)
            case _:
                return None

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        fields = schema.get("properties", {})
        found = {name: self.made(each, name, depth + 1) for name, each in fields.items()}
        more = schema.get("additionalProperties")
        if not fields and isinstance(more, Mapping):
            found["greet"] = self.made(more, "", depth + 1)
        return found


def _is(value: Any, schema: Mapping[str, Any]) -> bool:
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": int | float,
        "boolean": bool,
    }
    kind = schema.get("type")
    return "format" not in schema and (kind is None or isinstance(value, kinds.get(kind, object)))
