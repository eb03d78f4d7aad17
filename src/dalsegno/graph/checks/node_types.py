"""Checks of a node's type and id: the type is in the catalog, the id is not reserved; sets the node's control kind."""

from __future__ import annotations

from dalsegno.graph.catalog import Catalog, NodeSpec
from dalsegno.graph.documents.draft import Draft, DraftNode
from dalsegno.graph.documents.findings import Report, kind_of, no_boolean, quoted
from dalsegno.graph.documents.normalise import RESERVED_IDS

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
