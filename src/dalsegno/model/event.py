"""Events: the history of an execution. They carry a gapless number per execution (L8), given by the ledger."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

EventKind = Literal[
    "ExecutionSubmitted",
    "ExecutionStarted",
    "ExecutionPaused",
    "ExecutionResumed",
    "ExecutionCompleted",
    "ExecutionFailed",
    "ExecutionCancelled",
    "NodeStarted",
    "NodeCompleted",
    "NodeFailed",
    "NodeRetrying",
    "NodeWaiting",
    "NodeRequeued",
    "NodeSkipped",
    "NodeCancelled",
    "ArrivalDropped",
    "Suspended",
    "TaskStarted",
    "TaskCompleted",
    "TaskFailed",
    "TaskRetrying",
    "TaskRequeued",
    "TaskCancelled",
    "TaskHandedOver",
    "TimerFired",
    "SignalReceived",
    "RequestReceived",
    "RequestAnswered",
    "ChildStarted",
    "ChildEnded",
    "TagsChanged",
    "VersionChanged",
    "CancelRequested",
    "LogWritten",
]


class NewEvent(Struct, frozen=True, gc=False):
    """An event as a transition records it. ``data`` is JSON, opaque to every store."""

    kind: EventKind
    node: str
    scope: str
    at: float
    data: bytes | None = None
    token: str | None = None


class Event(Struct, frozen=True, gc=False):
    """An event as it is read back.

    To an event of a barrier the ledger adds how many of the expected arrivals had come as of its commit.
    """

    execution: str
    seq: int
    kind: EventKind
    node: str
    scope: str
    at: float
    data: bytes | None
    token: str | None
    arrived: int | None = None
    expected: int | None = None


def recorded(event: NewEvent, execution: str, seq: int, arrived: int | None, expected: int | None) -> Event:
    """Return the event as it is read back."""
    return Event(
        execution,
        seq,
        event.kind,
        event.node,
        event.scope,
        event.at,
        event.data,
        event.token,
        arrived,
        expected,
    )


Numbered = tuple[NewEvent, int, int | None, int | None]
"""An event as a commit has recorded it: its number, and for a barrier the arrivals that had come and those expected."""
