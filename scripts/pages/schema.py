"""``graph.schema.json``: the JSON Schema of graph documents, both spellings, with the parameters of every node type.

It describes shape, for editors, forms and documentation. Properties of the whole graph (cycles, references, scopes)
are checked by `load_graph`, which also decides where the two differ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dalsegno.graph.catalog import Catalog, NodeSpec
from dalsegno.graph.documents.normalise import RESERVED_IDS
from dalsegno.nodes.registry import builtin_registry

_Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NULLABLE_OBJECT: _Schema = {"type": ["object", "null"]}
_TYPE_AND_PARAMETERS = (("type", "parameters"), ("handler", "config"))
_ID_HINT = f"`$<id>` is the node's output in expressions; reserved: {', '.join(RESERVED_IDS)}."
_TEMPLATED: _Schema = {
    "type": "string",
    "pattern": r"\{\{|\$",
    "description": "An expression: judged when the node runs.",
}


def page() -> str:
    schema = document_schema(builtin_registry(plugins=False))
    return json.dumps(schema, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def document_schema(catalog: Catalog) -> _Schema:
    specs = [spec for name in catalog.types() if (spec := catalog.find(name)) is not None]
    return {
        "$schema": DIALECT,
        "title": "Dal Segno graph",
        "type": "object",
        "properties": _top_properties(),
        "anyOf": [{"required": ["nodes"]}, {"required": ["dag"]}],
        "$defs": {
            "duration": _duration(),
            "retry": _retry(),
            "error": _error(),
            "edge": _edge(),
            "node": _node(specs),
            **{_definition(spec): _parameters(spec) for spec in specs},
        },
    }


def _top_properties() -> _Schema:
    nodes: _Schema = {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/node"}}
    edges: _Schema = {"type": ["array", "null"], "items": {"$ref": "#/$defs/edge"}}
    return {
        "name": {"type": "string", "minLength": 1, "maxLength": 200},
        "description": {"type": ["string", "null"]},
        "tags": {"type": ["array", "null"], "items": {"type": "string"}},
        "input_schema": {**_NULLABLE_OBJECT, "description": "JSON Schema of the start payload."},
        "timeout": _optional("duration"),
        "output": {
            "type": ["string", "object", "number", "boolean", "null"],
            "description": "An expression: the result of the execution.",
        },
        "concurrency": _concurrency("Text, or an expression over the start payload: $trigger.customer."),
        "nodes": nodes,
        "edges": edges,
        "dag": {"type": "object", "properties": {"nodes": nodes, "edges": edges}, "required": ["nodes"]},
    }


def _concurrency(key: str) -> _Schema:
    limit: _Schema = {"type": "integer", "minimum": 1, "description": "How many at once."}
    rate: _Schema = {
        "type": ["string", "null"],
        "description": "How many may start in a period: 10/s, 100/m.",
    }
    named: _Schema = {"type": ["string", "null"], "maxLength": 500, "description": key}
    return {
        "description": "A limit over all executions and processes.",
        "anyOf": [
            limit,
            {"type": "string", "minLength": 1, "maxLength": 500},
            {
                "type": "object",
                "properties": {"key": named, "limit": limit, "rate": rate},
                "additionalProperties": False,
            },
            {"type": "null"},
        ],
    }


def _optional(definition: str) -> _Schema:
    return {"anyOf": [{"$ref": f"#/$defs/{definition}"}, {"type": "null"}]}


def _duration() -> _Schema:
    return {
        "description": "Seconds, or text with units: 500ms, 30s, 1h30m, 7d.",
        "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": "^\\s*[0-9]"}],
    }


def _retry() -> _Schema:
    return {
        "type": "object",
        "properties": {
            "max_attempts": {"type": "integer", "minimum": 1, "maximum": 1000},
            "initial_delay": _optional("duration"),
            "factor": {"type": "number", "minimum": 1, "maximum": 100},
            "max_delay": _optional("duration"),
            "jitter": {"type": "number", "minimum": 0, "maximum": 1},
            "on": {"type": ["array", "string"], "items": {"type": "string"}},
        },
        "additionalProperties": False,
    }


def _error() -> _Schema:
    strategy = {"enum": ["halt", "ignore", "branch"]}
    fields = {
        "type": "object",
        "properties": {"type": strategy, "error_edge": {"type": ["string", "null"]}},
    }
    return {"anyOf": [strategy, fields, {"type": "null"}]}


def _credentials() -> _Schema:
    name: _Schema = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"}
    named = {"type": "object", "properties": {"ref": name}, "additionalProperties": False}
    return {"description": "A credential of the store, by name.", "anyOf": [named, name, {"type": "null"}]}


def _edge() -> _Schema:
    return {
        "type": "object",
        "properties": {
            "id": {"type": "string", "minLength": 1, "maxLength": 300},
            "src": {"type": "string"},
            "dst": {"type": "string"},
            "is_error": {"enum": [True, False, "error", "success", "true", "false", "", None]},
        },
        "required": ["src", "dst"],
    }


def _node(specs: list[NodeSpec]) -> _Schema:
    known = {"enum": sorted({name for spec in specs for name in (spec.type, *spec.aliases)})}
    return {
        "type": "object",
        "properties": {
            "id": {"type": "string", "pattern": r"^\w[\w.:-]{0,127}$", "description": _ID_HINT},
            "name": {"type": ["string", "null"]},
            "type": known,
            "handler": known,
            "parameters": _NULLABLE_OBJECT,
            "config": _NULLABLE_OBJECT,
            "dependencies": {"type": ["array", "null"], "items": {"type": "string"}, "uniqueItems": True},
            "trigger": {"type": ["boolean", "null"]},
            "retry": _optional("retry"),
            "timeout": _optional("duration"),
            "queue": {"type": ["string", "null"], "maxLength": 100},
            "concurrency": _concurrency("Text."),
            "credentials": _credentials(),
            "error": {"$ref": "#/$defs/error"},
        },
        "required": ["id"],
        "anyOf": [{"required": ["type"]}, {"required": ["handler"]}, {"required": ["trigger"]}],
        "allOf": [_parameters_by_type(spec, *fields) for spec in specs for fields in _TYPE_AND_PARAMETERS],
    }


def _parameters_by_type(spec: NodeSpec, type_field: str, parameters_field: str) -> _Schema:
    return {
        "if": {"properties": {type_field: {"enum": [spec.type, *spec.aliases]}}, "required": [type_field]},
        "then": {"properties": {parameters_field: _optional(_definition(spec))}},
    }


def _definition(spec: NodeSpec) -> str:
    return f"parameters.{spec.type}"


def _parameters(spec: NodeSpec) -> _Schema:
    """Return the type's schema as a separate resource, so that ``#/$defs/…`` in it keeps its meaning."""
    schema: _Schema = {"type": "object", **spec.parameter_schema}
    properties: Mapping[str, Any] = schema.get("properties", {})
    templated = {
        name: value if spec.kinds.get(name, "template") == "raw" else {"anyOf": [value, _TEMPLATED]}
        for name, value in properties.items()
    }
    return {**schema, "$id": f"urn:dalsegno:node:{spec.type}", "properties": templated}
