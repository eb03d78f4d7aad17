"""``nodes.md``: one section per built-in node type, from its parameter model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dalsegno.nodes.registry import builtin_registry
from dalsegno.ports.node import NodeType
from scripts.pages.markdown import NOTICE, code, table

INTRODUCTION = """
A node in a document has an `id`, a `type` and `parameters`; [Graph documents](graphs.md) lists its other fields.
Parameters may hold [templates](expressions.md#templates) unless the column *kind* says otherwise: a *condition* or
*expression* is evaluated by the node (per item, where it works on a list), and *written out* means that the value is
needed before anything runs.

"""

FAMILIES: dict[str, tuple[str, ...]] = {
    "Do": ("http", "task", "script", "workflow", "log", "datetime"),
    "Decide": ("conditional", "switch"),
    "Fan out and join": ("split", "aggregator", "merge"),
    "Wait": ("wait", "approval"),
    "Shape data": ("edit", "filter", "map", "sort", "limit", "group", "dedupe"),
    "Begin and end": ("input", "output", "manual", "schedule", "webhook"),
}

NOTES = {
    "schedule": "Deploying the graph makes the schedule `<workflow>/<node id>`, which starts it with the input `{}`; "
    "see [Triggers](graphs.md#triggers).",
    "webhook": "Deploying the graph makes the [webhook](../webhooks.md) `<workflow>.<node id>`; see "
    "[Triggers](graphs.md#triggers).",
    "http": "`POST`, `PUT`, `PATCH` and `DELETE` carry an `Idempotency-Key`: the run's key, the same for all its "
    "attempts and another one for every run. If you set a header of that name, it is sent instead. `GET`, `HEAD` "
    "and `OPTIONS` change nothing and carry none. Each page of a pagination has a key of its own, and a "
    "redirect that becomes a `GET` drops it. What the node may reach is a matter of [egress "
    "rules](../how-to/egress.md). Statuses named by `raise_on_status` fail with the code `HTTP_<status>`.",
    "task": "See [the tutorial](../tutorial.md#tasks-in-python). The function gets its whole input if it has one "
    "parameter, the fields of an object if it has several, and a `TaskContext` where a parameter is annotated so or is "
    "called `ctx`.",
    "wait": "A past time wakes at once. While it waits it is a row: no thread, no process, no memory. About signals, "
    "see [Wait for people and other systems](../how-to/wait-for-people-and-systems.md).",
    "approval": "Decided by `handle.decide` or by a signal: see [Wait for people and other "
    "systems](../how-to/wait-for-people-and-systems.md#a-persons-decision).",
    "script": "The script is checked with the document and stored with it. It runs as an execution of its own, which "
    "shares its retries, errors, time limit and end with the node as a `workflow` does.",
    "workflow": "See [Wait for people and other "
    "systems](../how-to/wait-for-people-and-systems.md#another-workflow).",
    "merge": "See [Joins](../concepts.md#joins). The timeout of a merge that waits for any has no effect.",
    "split": "See [Splits](../concepts.md#splits).",
}

_KINDS = {"template": "", "condition": "condition", "expression": "expression", "raw": "written out"}


def page() -> str:
    registry = builtin_registry(plugins=False)
    listed = {name for names in FAMILIES.values() for name in names}
    families = {**FAMILIES, "Other": tuple(name for name in registry.types() if name not in listed)}
    sections = []
    for title, names in families.items():
        if names:
            sections.append(f"## {title}\n\n" + "\n".join(_section(registry.get(name)) for name in names))
    return f"# Nodes\n\n{NOTICE}{INTRODUCTION}" + "\n".join(sections)


def _section(node: NodeType) -> str:
    spec = node.spec
    lines = [f"### {spec.type}\n", f"{node.description}\n"]
    if spec.aliases:
        lines.append(f"Also written {', '.join(code(alias) for alias in spec.aliases)}.\n")
    lines.append(_parameters(spec.parameter_schema, spec.kinds))
    lines += [_part(name, part) for name, part in spec.parameter_schema.get("$defs", {}).items()]
    lines.append(_output(node.output_schema))
    if spec.type in NOTES:
        lines.append(f"{NOTES[spec.type]}\n")
    return "\n".join(line for line in lines if line)


def _parameters(schema: Mapping[str, Any], kinds: Mapping[str, str]) -> str:
    properties: Mapping[str, Any] = schema.get("properties", {})
    if not properties:
        return "It takes no parameters.\n"
    required = set(schema.get("required", ()))
    rows = [
        (
            code(name),
            _type(field),
            _default(field, name in required),
            _KINDS[kinds.get(name, "template")],
            _text(field),
        )
        for name, field in properties.items()
    ]
    return table(("parameter", "type", "default", "kind", "meaning"), rows)


def _part(name: str, schema: Mapping[str, Any]) -> str:
    """An object that parameters hold."""
    if "properties" not in schema:
        return ""
    required = set(schema.get("required", ()))
    rows = [
        (code(field), _type(part), _default(part, field in required), _text(part))
        for field, part in schema["properties"].items()
    ]
    said = f" {schema['description']}" if "description" in schema else ""
    return f"*{name}*:{said}\n\n{table(('field', 'type', 'default', 'meaning'), rows)}"


def _type(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return ", ".join(code(choice) for choice in field["enum"])
    if "$ref" in field:
        return f"*{field['$ref'].rpartition('/')[2]}*"
    choices = field.get("anyOf") or field.get("allOf")
    if choices:
        shown = [_type(choice) for choice in choices if choice.get("type") != "null"]
        return " or ".join(dict.fromkeys(shown))
    if field.get("type") == "array":
        items = field.get("items", {})
        return f"list of {_type(items)}" if items else "list"
    kind = field.get("type")
    if isinstance(kind, list):
        return " or ".join(each for each in kind if each != "null")
    return str(kind or "anything")


def _default(field: Mapping[str, Any], required: bool) -> str:
    if required:
        return "required"
    default = field.get("default")
    return "" if default is None or default in ("", [], {}) else code(json.dumps(default, ensure_ascii=False))


def _text(field: Mapping[str, Any]) -> str:
    bounds = [
        f"{word} {field[key]}"
        for key, word in (("minimum", "at least"), ("maximum", "at most"))
        if key in field
    ]
    return " ".join([field.get("description", ""), f"({', '.join(bounds)})" if bounds else ""])


def _output(schema: Mapping[str, Any]) -> str:
    properties = schema.get("properties")
    if "description" in schema:
        return f"Output: {schema['description'][:1].lower()}{schema['description'][1:]}\n"
    if not properties:
        return ""
    fields = [
        code(name) + (f" ({field['description'].rstrip('.')})" if "description" in field else "")
        for name, field in properties.items()
    ]
    return f"Output: {', '.join(fields)}.\n"
