"""Checks of a node's type and id: the type is in the catalog, the id is not reserved; sets the node's control kind.

Names of tasks that a document gives as plain text. Templates are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dalsegno.graph.catalog import Catalog, NodeSpec
from dalsegno.graph.documents.draft import Draft, DraftNode
from dalsegno.graph.documents.findings import Report, kind_of, no_boolean, pointer_to, quoted
from dalsegno.graph.documents.normalise import RESERVED_IDS
from dalsegno.graph.plan import Plan
from dalsegno.lang import ExpressionError, RootNames, compile_string

_TRIGGER_SPELLINGS = {"ManualTrigger": "manual", "ScheduledTrigger": "schedule", "WebhookTrigger": "webhook"}
_START_PAYLOAD = ("trigger", "input")


def resolve_types(draft: Draft, catalog: Catalog, report: Report) -> None:
    known = tuple(catalog.types())
    found: dict[str, NodeSpec | None] = {}
    for node in draft.nodes:
        if node.type not in found:
            found[node.type] = _find(node.type, catalog)
        node.spec = found[node.type]
        marked = _marked_trigger(node, report)
        if node.spec is not None:
            node.type = node.spec.type
            node.control = node.spec.control
        elif node.type and not marked:
            message = f"There is no node type {quoted(node.type)}{report.suggest(node.type, known)}"
            key = "handler" if "type" not in node.fields else "type"
            report.error(f"{node.pointer}/{key}", "unknown-type", _sentence(message))
        if marked:
            node.control = "trigger"
        _check_reserved(node, report)


def _find(type_name: str, catalog: Catalog) -> NodeSpec | None:
    spec = catalog.find(type_name) if type_name else None
    other = _TRIGGER_SPELLINGS.get(type_name)
    return spec or (catalog.find(other) if other else None)


def _marked_trigger(node: DraftNode, report: Report) -> bool:
    mark = node.fields.get("trigger")
    if mark is None or isinstance(mark, bool):
        return bool(mark)
    message = f"'trigger' must be true or false, not {kind_of(mark)}.{no_boolean(mark)}"
    report.error(f"{node.pointer}/trigger", "wrong-type", message)
    return False


def _check_reserved(node: DraftNode, report: Report) -> None:
    if node.id not in RESERVED_IDS or stands_for_start_payload(node):
        return
    message = (
        f"The id '{node.id}' is reserved: '${node.id}' means something else in expressions; choose another."
    )
    report.error(f"{node.pointer}/id", "reserved-id", message)


def stands_for_start_payload(node: DraftNode) -> bool:
    """Return True if `$<id>` is the start payload in any case. Such a node may use a reserved word as its id."""
    if node.id in RESERVED_IDS and node.id not in _START_PAYLOAD:
        return False
    return node.trigger or (node.id == "input" and node.type == "input")


def _sentence(message: str) -> str:
    return message if message.endswith("?") else f"{message}."


# -- names of tasks ------------------------------------------------------------------------------------------


def named_tasks(plan: Plan, source: bytes) -> Iterator[tuple[str, str, str]]:
    """Yield pointer, node and task name. The stored form keeps the document's spelling and the order of its nodes."""
    if not any(node.type == "task" for node in plan.nodes.values()):
        return
    document = msgspec.json.decode(source)
    base, container = ("/dag", document["dag"]) if isinstance(document.get("dag"), dict) else ("", document)
    for index, fields in enumerate(container.get("nodes") or ()):
        node = plan.nodes.get(fields.get("id", ""))
        if node is None or node.type != "task" or node.id in plan.triggers:
            continue
        key = "parameters" if fields.get("parameters") is not None else "config"
        parameters = fields.get(key) or {}
        name = "task" if "task" in parameters else "name"
        task = _constant(parameters.get(name))
        if task is not None:
            yield pointer_to(base, "nodes", index, key, name), node.id, task


def _constant(written: Any) -> str | None:
    if not isinstance(written, str):
        return None
    try:
        compiled = compile_string(written, RootNames.of(()), False)
    except ExpressionError:
        return None  # the name is a template
    return compiled if isinstance(compiled, str) else None
