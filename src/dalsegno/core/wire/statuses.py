"""Statuses and completions: made from an execution's history, in its order.

`Statuses` folds the events one by one. It keeps only what later events need: which runs were reported as running, and
which splits stand behind the names of scopes. Values stay references until they are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from dalsegno.graph.plan import Node, Plan
from dalsegno.model.event import Event

StatusName = Literal["running", "success", "failed", "waiting", "skipped", "cancelled"]
CompletionName = Literal["completed", "failed", "halted"]

ENDINGS = ("ExecutionCompleted", "ExecutionFailed", "ExecutionCancelled")
INLINE = 1024 * 1024
"""Bytes of a value up to which a message carries it."""


class Status(Struct, frozen=True, omit_defaults=True):
    """One status. ``output_ref`` names an output that is stored apart: ``output:<id>`` or ``blob:<id>``."""

    number: int
    """Number of the event it was made from."""
    node: str
    status: StatusName
    at: float
    scope: str = ""
    output: Raw | None = None
    output_ref: str | None = None
    error: dict[str, Any] | None = None
    duration: float = 0.0
    attempt: int | None = None
    details: dict[str, Any] | None = None
    resume_at: int | None = None

    def id(self, execution: str) -> str:
        return f"{execution}:{self.number}:{self.status}"


class Completion(Struct, frozen=True):
    number: int
    """Number of the event that ended the execution."""
    status: CompletionName
    at: float
    duration: float
    error: dict[str, Any] | None

    def id(self, execution: str) -> str:
        return f"{execution}:{self.number}:{self.status}"


class _Record(Struct, frozen=True):
    """The parts of an event's data that statuses are made from."""

    started_at: float | None = None
    attempt: int = 1
    output: Raw = Raw()
    output_ref: str | None = None
    error: dict[str, Any] | None = None
    retry_at: float | None = None
    resume_at: float | None = None
    signal: str | None = None
    child: str | None = None
    due: float | None = None
    items: int | None = None
    tripped: bool = False
    split: str | None = None
    total: int | None = None


class _Start(Struct, frozen=True):
    workflow_id: str = ""
    keys: tuple[str, ...] = ()


class _StartRecord(Struct, frozen=True):
    adopted: _Start | None = None


_decode = msgspec.json.Decoder(_Record).decode
_decode_start = msgspec.json.Decoder(_StartRecord).decode
NOTHING = _Record()
SCOPE_TOKEN = 16
"""Characters of a split's token in the names of its scopes."""


class Statuses:
    """Folds the history of one execution. ``seq`` is the number of the last event added."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.seq = 0
        self.workflow_id = ""
        """That of the message that started the execution; empty if none did."""
        self.keys: tuple[str, ...] = ()
        """Keys of that message's context."""
        self.started_at: float | None = None
        self.ending: Event | None = None
        self._running: dict[str, int] = {}
        """Tokens whose current attempt was reported as running, and the attempt."""
        self._splits: dict[str, tuple[str, int]] = {}
        """The split and the number of its items, by the token in the names of its scopes."""

    def add(self, event: Event) -> list[Status]:
        self.seq = event.seq
        if event.kind in ENDINGS:
            self.ending = event
        make = _MAKERS.get(event.kind)
        return list(make(self, event)) if make is not None else []

    def lineage(self, scope: str) -> list[dict[str, Any]]:
        """Return the splits around a scope, outermost first."""
        frames = []
        for name in scope.split("/")[1:]:
            token, _, index = name.rpartition(":")
            split, total = self._splits.get(token, ("", 0))
            frames.append(
                {
                    "split_node_id": split,
                    "branch_id": f"{split}-{index}",
                    "item_index": int(index),
                    "total_items": total,
                }
            )
        return frames

    def completion(self) -> Completion | None:
        """Return the completion, once the execution has ended and its whole history was added."""
        event = self.ending
        if event is None:
            return None
        since = self.started_at if self.started_at is not None else event.at
        status, error = _ending(event)
        return Completion(event.seq, status, event.at, max(event.at - since, 0.0), error)

    # -- events -----------------------------------------------------------------------------------------------

    def started(self, event: Event) -> Iterator[Status]:
        if event.kind == "ExecutionStarted":
            self.started_at = event.at
        record = _decode_start(event.data) if event.data else _StartRecord()
        if record.adopted is not None:
            self.workflow_id, self.keys = record.adopted.workflow_id, record.adopted.keys
        yield from ()

    def node_started(self, event: Event) -> Iterator[Status]:
        yield from self._as_running(event, _record(event))

    def node_ended(self, event: Event) -> Iterator[Status]:
        record = _record(event)
        if not record.tripped:
            yield from self._as_running(event, record)
        self._running.pop(event.token or "", None)
        if record.items is not None and event.token is not None:
            self._splits[event.token[:SCOPE_TOKEN]] = (event.node, record.items)
        has_failed = event.kind == "NodeFailed"
        output = bytes(record.output)
        yield Status(
            event.seq,
            event.node,
            "failed" if has_failed else "success",
            event.at,
            event.scope,
            Raw(output) if output and not has_failed else None,
            None if has_failed else record.output_ref,
            _error(record.error) if has_failed else None,
            _duration(event, record),
            record.attempt,
        )

    def retrying(self, event: Event) -> Iterator[Status]:
        record = _record(event)
        yield from self._as_running(event, record)
        self._running.pop(event.token or "", None)
        details = {
            "attempt": record.attempt,
            "retry_at": _milliseconds(record.retry_at),
            "error": _error(record.error),
        }
        yield Status(
            event.seq, event.node, "waiting", event.at, event.scope, attempt=record.attempt, details=details
        )

    def waiting(self, event: Event) -> Iterator[Status]:
        if event.expected is not None:
            yield self._progress(event, event.arrived or 0, event.expected)
            return
        record = _record(event)
        if record.split is not None and event.token is not None and record.total is not None:
            self._splits[event.token[:SCOPE_TOKEN]] = (record.split, record.total)
            yield self._progress(event, 0, record.total)
            return
        resume_at = _milliseconds(record.resume_at)
        details: dict[str, Any] = {"resume_at": resume_at} if resume_at is not None else {}
        details |= {
            key: found for key, found in (("signal", record.signal), ("child", record.child)) if found
        }
        if record.due is not None:
            details["due"] = _milliseconds(record.due)
        yield Status(
            event.seq,
            event.node,
            "waiting",
            event.at,
            event.scope,
            attempt=record.attempt,
            details=details or None,
            resume_at=resume_at,
        )

    def _progress(self, event: Event, arrived: int, expected: int) -> Status:
        node = self.plan.nodes.get(event.node)
        collects = node is not None and node.control in ("aggregator", "split")
        names = ("processed", "total") if collects else ("arrived", "expected")
        details = dict(zip(names, (arrived, expected), strict=True))
        return Status(event.seq, event.node, "waiting", event.at, event.scope, details=details)

    def skipped(self, event: Event) -> Iterator[Status]:
        yield Status(event.seq, event.node, "skipped", event.at, event.scope)

    def cancelled(self, event: Event) -> Iterator[Status]:
        """Report a run that the ending cancelled, with the ending's time: its own event follows the ending."""
        self._running.pop(event.token or "", None)
        at = event.at if self.ending is None else min(event.at, self.ending.at)
        yield Status(event.seq, event.node, "cancelled", at, event.scope)

    def _as_running(self, event: Event, record: _Record) -> Iterator[Status]:
        """Report the attempt as running, unless it was reported before."""
        token = event.token or ""
        if self._running.get(token) == record.attempt:
            return
        self._running[token] = record.attempt
        at = event.at if record.started_at is None else min(record.started_at, event.at)
        yield Status(event.seq, event.node, "running", at, event.scope, attempt=record.attempt)


_MAKERS = {
    "ExecutionSubmitted": Statuses.started,
    "ExecutionStarted": Statuses.started,
    "NodeStarted": Statuses.node_started,
    "NodeCompleted": Statuses.node_ended,
    "NodeFailed": Statuses.node_ended,
    "NodeRetrying": Statuses.retrying,
    "NodeWaiting": Statuses.waiting,
    "NodeSkipped": Statuses.skipped,
    "NodeCancelled": Statuses.cancelled,
}


def _record(event: Event) -> _Record:
    return _decode(event.data) if event.data else NOTHING


def _duration(event: Event, record: _Record) -> float:
    return max(event.at - record.started_at, 0.0) if record.started_at is not None else 0.0


def _milliseconds(at: float | None) -> int | None:
    return round(at * 1000) if at is not None else None


def _error(error: Mapping[str, Any] | None) -> dict[str, Any]:
    given = error or {}
    return {
        "message": str(given.get("message") or "no reason recorded"),
        "code": str(given.get("code") or "ERROR"),
        "details": given.get("details"),
    }


class _EndRecord(Struct, frozen=True):
    error: dict[str, Any] | None = None


_decode_end = msgspec.json.Decoder(_EndRecord).decode


def _ending(event: Event) -> tuple[CompletionName, dict[str, Any] | None]:
    if event.kind == "ExecutionCompleted":
        return "completed", None
    record = _decode_end(event.data) if event.data else _EndRecord()
    error = _error(record.error)
    if event.kind == "ExecutionCancelled":
        return "failed", {**error, "code": "CANCELLED"}
    # The event names a node if a node's own strategy has ended the execution.
    return ("halted" if event.node else "failed"), error


# -- bodies ----------------------------------------------------------------------------------------------------


def utc_text(at: float) -> str:
    seconds, milliseconds = divmod(round(at * 1_000_000) // 1000, 1000)
    return f"{_to_seconds(seconds)}.{milliseconds:03}Z"


@lru_cache(maxsize=64)
def _to_seconds(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class Names(Struct, frozen=True):
    """Names of an execution that each of its messages contains."""

    workflow_id: str
    execution_id: str


def names_of(statuses: Statuses, execution: str, workflow: str) -> Names:
    return Names(statuses.workflow_id or workflow, execution)


encode = msgspec.json.Encoder().encode


class StatusMessage(Struct, frozen=True, omit_defaults=True):
    """The JSON object of a status. What has no default is in every message."""

    workflow_id: str
    execution_id: str
    node_id: str
    node_name: str
    status: StatusName
    output: Raw | None
    error: dict[str, Any] | None
    executed_at: str
    duration_ms: int
    lineage_stack: list[dict[str, Any]] | None = None
    from_node: str | None = None
    attempt: int | None = None
    details: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


def status_body(names: Names, statuses: Statuses, status: Status, output: Raw | None) -> bytes:
    """Return the message of a status. ``output`` is what its reference names."""
    node = statuses.plan.nodes.get(status.node)
    return encode(
        StatusMessage(
            names.workflow_id,
            names.execution_id,
            status.node,
            node.name if node is not None else status.node,
            status.status,
            output if output is not None else status.output,
            status.error,
            utc_text(status.at),
            round(status.duration * 1000),
            statuses.lineage(status.scope) if status.scope else None,
            only_sender(node) if node is not None else None,
            status.attempt,
            status.details,
            {"resume_at": status.resume_at} if status.resume_at is not None else None,
        )
    )


def only_sender(node: Node) -> str | None:
    if len(node.in_edges) == 1:
        return node.in_edges[0].src
    senders = {edge.src for edge in node.in_edges}
    return senders.pop() if len(senders) == 1 else None


def is_told_at_the_end(key: str, plan: Plan, keys: Collection[str]) -> bool:
    """Return True for a key of the final context that the completion carries."""
    return key == "$trigger" or key in keys or key.removeprefix("$") in plan.nodes


def completion_body(names: Names, completion: Completion, context: Mapping[str, Raw]) -> bytes:
    return encode(
        {
            "workflow_id": names.workflow_id,
            "execution_id": names.execution_id,
            "status": completion.status,
            "final_context": context,
            "completed_at": utc_text(completion.at),
            "total_duration_ms": round(completion.duration * 1000),
            "error": completion.error,
        }
    )


def value_reference(id: str, url: str) -> Raw:
    """Return what a message carries instead of a value over `INLINE` bytes."""
    return Raw(encode({"$ref": id, "url": url}))
