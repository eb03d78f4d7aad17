"""Executions: one run of one definition version."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

ExecutionState = Literal["PENDING", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED"]
NodeState = Literal["PENDING", "QUEUED", "RUNNING", "WAITING", "COMPLETED", "FAILED", "SKIPPED", "CANCELLED"]
EndState = Literal["COMPLETED", "FAILED", "CANCELLED"]

ExecutionKind = Literal["graph", "script", "python", "task", "schedule"]
"""task: one task on its own · schedule: the timer of a schedule, shown as such and not as a run."""

SCRIPTED: frozenset[str] = frozenset(("script", "python"))
"""Kinds that run on a machine."""

ENDED: frozenset[str] = frozenset(("COMPLETED", "FAILED", "CANCELLED"))
NOT_ENDED: tuple[ExecutionState, ...] = ("PENDING", "RUNNING", "PAUSED")
UNDER_WAY: tuple[ExecutionState, ...] = ("RUNNING", "PAUSED")
"""States of executions that have begun and not ended."""

CLEANUP_RELATION = "cleanup"
"""Relation of an execution that continues the clean-up of its parent."""
SCHEDULE_RELATION = "schedule"
"""Relation of an execution that a schedule started."""


class NewExecution(Struct, frozen=True):
    """An execution as a start creates it. ``input`` is the start payload as JSON."""

    id: str
    workflow: str
    version: int
    definition: str
    input: bytes
    created_at: float
    priority: int = 0
    tags: tuple[tuple[str, str], ...] = ()
    idempotency_key: str | None = None
    parent: str | None = None
    """The execution that this one retries or reruns, or whose child it is."""
    relation: str | None = None
    """How it relates to ``parent``: ``retry``, ``rerun``, ``child``, ``started`` (a detached child), ``task``
    (handed over), ``schedule``, ``cleanup``.
    """
    kind: ExecutionKind = "graph"
    notify: bytes | None = None
    """Content of the outbox entry ``ended`` that its ending leaves; None: no entry."""
    publishes: bool = False
    """Its statuses and its completion are published: its creation leaves a mark of how far that has come."""
    publisher: str | None = None
    published_until: float | None = None
    """The process that publishes them from the start, and the time until which no other one does."""


class Ending(Struct, frozen=True, gc=False):
    """The result part of an ended execution. ``output`` and ``error`` are JSON."""

    state: EndState
    output: bytes | None
    error: bytes | None


class ExecutionView(Struct, frozen=True):
    """An execution's row. ``context`` is an encoded context reference, ``output`` and ``error`` are JSON.

    An outline is a row without ``input``, ``output`` and ``context``, which may be large.
    """

    id: str
    workflow: str
    version: int
    definition: str
    state: ExecutionState
    input: bytes
    created_at: float
    touched_at: float
    epoch: int
    live: int
    seq: int
    priority: int
    tags: tuple[tuple[str, str], ...]
    idempotency_key: str | None
    parent: str | None
    relation: str | None
    paused_at: float | None
    ended_at: float | None
    output: bytes | None
    context: bytes | None
    error: bytes | None
    kind: ExecutionKind = "graph"
    value_bytes: int = 0
    """For an outline: the bytes of what is left out."""

    @property
    def ending(self) -> Ending | None:
        match self.state:
            case "COMPLETED" | "FAILED" | "CANCELLED" as state:
                return Ending(state, self.output, self.error)
            case _:
                return None
