"""What an execution's history tells about its nodes: outputs, edges taken, errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.complete import SAME
from dalsegno.core.context import BLOB, OUTPUT, Entry, reference, value
from dalsegno.graph.plan import Node
from dalsegno.model.event import Event


class RunFacts(Struct, frozen=True):
    """The last committed run of a node at the root."""

    node: str
    output: Entry | None
    failed: bool
    edges: tuple[str, ...] | None
    """The out-edges it chose, where it had a choice."""
    working: Entry | None = None
    """The working payload ``$json`` it left, if it left one."""
    entries: Mapping[str, bytes] = {}
    """Further context entries it left: an aggregator's ``$<split>``."""


class _Record(Struct, frozen=True):
    output: Raw = Raw()
    """Empty where there is none: msgspec cannot decode ``Raw | None``."""
    output_ref: str | None = None
    error: dict[str, Any] | None = None
    edges: tuple[str, ...] | None = None
    json: Raw = Raw()
    json_ref: str | None = None
    entries: dict[str, Raw] = {}


_decode = msgspec.json.Decoder(_Record).decode


def run_facts(events: Iterable[Event]) -> dict[str, RunFacts]:
    """By node, for runs in the root scope; the last run of a node counts."""
    facts: dict[str, RunFacts] = {}
    for event in events:
        if event.kind not in ("NodeCompleted", "NodeFailed") or event.scope or event.data is None:
            continue
        record = _decode(event.data)
        facts[event.node] = RunFacts(
            event.node,
            _entry(record),
            event.kind == "NodeFailed",
            record.edges,
            _working(record),
            {key: bytes(raw) for key, raw in record.entries.items()},
        )
    return facts


def _entry(record: _Record) -> Entry | None:
    if record.error is not None:
        error = {key: told for key, told in record.error.items() if key != "traceback"}
        return value(msgspec.json.encode({"error": error}))
    if raw := bytes(record.output):
        return value(raw)
    return _referred(record.output_ref)


def _working(record: _Record) -> Entry | None:
    if record.json_ref == SAME:
        return _entry(record)
    if raw := bytes(record.json):
        return value(raw)
    return _referred(record.json_ref)


def _referred(text: str | None) -> Entry | None:
    if text is None:
        return None
    kind, _, name = text.partition(":")
    return reference(BLOB if kind == "blob" else OUTPUT, name)


def took(facts: RunFacts, node: Node, edge: str) -> bool:
    """Whether that run sent a token over that edge."""
    if facts.edges is not None:
        return edge in facts.edges
    return not facts.failed and any(own.id == edge for own in node.success_edges)
