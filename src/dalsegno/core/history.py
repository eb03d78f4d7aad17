"""Facts read from an execution's history.

- Nodes: outputs, edges taken, errors.
- Start: the input, and for a single task its options, so that a retry runs it the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.graph.complete import SAME
from dalsegno.core.graph.step_input import BLOB, OUTPUT, Entry, reference, value
from dalsegno.graph.plan import Node
from dalsegno.model.event import Event


class RunFacts(Struct, frozen=True):
    """The last committed run of a node at the root."""

    node: str
    output: Entry | None
    failed: bool
    edges: tuple[str, ...] | None
    """The out-edges it chose, if it had a choice."""
    working: Entry | None = None
    """The working payload ``$json`` it left, if any."""
    entries: Mapping[str, bytes] = {}
    """Further context entries it left: an aggregator's ``$<split>``."""


class _Record(Struct, frozen=True):
    output: Raw = Raw()
    """Empty if there is none: msgspec cannot decode ``Raw | None``."""
    output_ref: str | None = None
    error: dict[str, Any] | None = None
    edges: tuple[str, ...] | None = None
    json: Raw = Raw()
    json_ref: str | None = None
    entries: dict[str, Raw] = {}


_decode = msgspec.json.Decoder(_Record).decode


def run_facts(events: Iterable[Event]) -> dict[str, RunFacts]:
    """Return the last run of each node in the root scope, by node."""
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
        error = {key: field for key, field in record.error.items() if key != "traceback"}
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
    """Return True if that run sent a token over that edge."""
    if facts.edges is not None:
        return edge in facts.edges
    return not facts.failed and any(own.id == edge for own in node.success_edges)


FIRST = ("ExecutionSubmitted", "ExecutionStarted")


class StartFacts(Struct, frozen=True, omit_defaults=True):
    input: Raw
    starts_at: float | None = None
    queue: str | None = None
    """For a single task: its queue, if it has one."""
    options: Mapping[str, Any] | None = None
    """For a single task: its options, in the form a script gives them."""


encode = msgspec.json.Encoder().encode
_decode_facts = msgspec.json.Decoder(StartFacts).decode


def start_facts(
    input: bytes,
    starts_at: float | None = None,
    queue: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> bytes:
    return encode(StartFacts(Raw(input), starts_at, queue, options or None))


def read_task(events: Sequence[Event]) -> StartFacts | None:
    """Return how a single task was last started, from the first of its events."""
    started = [event.data for event in events if event.kind in FIRST and event.data is not None]
    return _decode_facts(started[-1]) if started else None
