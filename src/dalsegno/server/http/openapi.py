"""The OpenAPI document and its viewer.

Every request and reply in the document has an example. A schema's own example takes precedence; otherwise it is
built from the schema's fields, with typical values for their names.
``/docs`` serves Swagger UI for the document. All its files are part of the package.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_args

import msgspec
from fastapi import FastAPI
from fastapi.responses import Response
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from dalsegno.model.execution import ExecutionState
from dalsegno.server.http.problems import Problem
from dalsegno.server.http.request import COOKIE
from dalsegno.server.http.static_files import SCRIPT, STYLE, StaticFile, served
from dalsegno.server.schemas.definitions import DefinitionSource, GraphDocument
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
    "checkpoint": "paid",
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
"""Example values by field name, used if the field's schema allows them."""
TEXTS = {
    "text/html": "<!doctype html><title>Approve?</title> …",
    "text/plain": '# TYPE dalsegno_executions_total counter\ndalsegno_executions_total{state="COMPLETED"} 42.0\n',
}


def complete(document: dict[str, Any]) -> None:
    """Add an example to every request body and every 2xx reply."""
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
        example = schema.get("example", schema.get("examples", [NOTHING])[0])
        if example is not NOTHING:
            return self._whole(example, schema, depth)
        if "const" in schema or "enum" in schema:
            return schema.get("const", schema.get("enum", [None])[0])
        if "anyOf" in schema:
            return self._one_of(schema, name, depth)
        usual = USUAL.get(name, NOTHING)
        if usual is not NOTHING and _is(usual, schema):
            return usual
        return self._by_type(schema, depth)

    def _whole(self, example: Any, schema: Mapping[str, Any], depth: int) -> Any:
        """Return the example with all its fields: the framework omits every null of an example, also for required
        fields."""
        if not isinstance(example, dict) or "properties" not in schema:
            return example
        missing = [name for name in schema.get("required", ()) if name not in example]
        return {
            **example,
            **{name: self.made(schema["properties"][name], name, depth + 1) for name in missing},
        }

    def _one_of(self, schema: Mapping[str, Any], name: str, depth: int) -> Any:
        """Return an example of an optional or union value: null if allowed and either typical or too deeply nested."""
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


OPENAPI = "/v1/openapi.json"
FOLDER = Path(__file__).parents[1] / "static"
FILES = {
    "/docs": ("reference.html", "text/html; charset=utf-8"),
    "/docs/reference.js": ("reference.js", SCRIPT),
    "/docs/reference.css": ("reference.css", STYLE),
    "/docs/swagger-ui-bundle.js": ("swagger/swagger-ui-bundle.js", SCRIPT),
    "/docs/swagger-ui.css": ("swagger/swagger-ui.css", STYLE),
    "/docs/favicon-32x32.png": ("swagger/favicon-32x32.png", "image/png"),
}
"""Files by fixed paths: no part of a request path ever becomes a file name. `scripts/vendor_swagger.py` updates the
files of Swagger UI."""


SCHEMES = {
    "key": {"type": "http", "scheme": "bearer", "description": "An API key, `ds_…`."},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "As `POST /v1/session` sets it.",
    },
}
ANY_SECURITY: list[dict[str, list[str]]] = [{"key": []}, {"session": []}, {}]
"""A key, a session, or neither on a server without keys."""
SCHEMA_ONLY: tuple[type[BaseModel], ...] = (Problem, DefinitionSource, GraphDocument)
"""Models of bodies that the framework does not read or write itself."""


def install(application: FastAPI, described: Callable[[], dict[str, Any]]) -> None:
    """Install the document. ``described`` renders the document of all routes."""
    _describe_access(application, described)
    application.add_api_route(OPENAPI, _Document(application).reply, include_in_schema=False)
    for path, (name, media) in FILES.items():
        application.add_api_route(path, served(StaticFile(FOLDER / name, media)), include_in_schema=False)


def _describe_access(application: FastAPI, described: Callable[[], dict[str, Any]]) -> None:
    """Add what the framework does not know: access, which the guard checks, errors, and bodies that are decoded
    separately. Each reply gets an example."""

    @cache
    def with_access() -> dict[str, Any]:
        document = described()
        components = document.setdefault("components", {})
        components.setdefault("schemas", {}).update(_unseen_schemas())
        _name_states(document)
        _summarize(document)
        complete(document)
        components["securitySchemes"] = SCHEMES
        document["security"] = ANY_SECURITY
        return document

    application.openapi = with_access  # type: ignore[method-assign]


def _unseen_schemas() -> dict[str, Any]:
    _, found = models_json_schema(
        [(model, "validation") for model in SCHEMA_ONLY], ref_template="#/components/schemas/{model}"
    )
    return dict(found["$defs"])


def _summarize(document: dict[str, Any]) -> None:
    """Set summaries from the operations' names: "Start execution". The framework would use the names of functions."""
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["summary"] = operation["operationId"].replace("_", " ").capitalize()


def _name_states(document: dict[str, Any]) -> None:
    """Use one schema for execution states in all places; otherwise generated clients have a type for each place."""
    _refer_to(document, list(get_args(ExecutionState)), {"$ref": "#/components/schemas/ExecutionState"})
    named = {"type": "string", "enum": list(get_args(ExecutionState)), "title": "ExecutionState"}
    document["components"]["schemas"]["ExecutionState"] = named


def _refer_to(below: Any, values: list[str], reference: dict[str, str]) -> None:
    if isinstance(below, dict):
        if below.get("enum") == values:
            kept = {key: below[key] for key in ("default", "description") if key in below}
            below.clear()
            below.update(reference | kept)
        for each in below.values():
            _refer_to(each, values, reference)
    elif isinstance(below, list):
        for each in below:
            _refer_to(each, values, reference)


class _Document:
    """The OpenAPI document as JSON: rendered once, in a thread, on the first request."""

    def __init__(self, application: FastAPI) -> None:
        self._application = application
        self._made: asyncio.Task[bytes] | None = None

    async def reply(self) -> Response:
        if self._made is None or self._made.get_loop() is not asyncio.get_running_loop():
            self._made = asyncio.create_task(asyncio.to_thread(self._render))
        return Response(await asyncio.shield(self._made), media_type="application/json")

    def _render(self) -> bytes:
        """Render the document with the garbage collector disabled: its full passes over all these new objects would
        block the event loop."""
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return msgspec.json.encode(self._application.openapi())
        finally:
            if was_enabled:
                gc.enable()
