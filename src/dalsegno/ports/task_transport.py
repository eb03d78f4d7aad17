"""Tasks handed out to workers of other programs over a broker, and their results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol


@dataclass(frozen=True, slots=True)
class ForeignWorker:
    """A living worker of another program."""

    id: str
    queues: tuple[str, ...]
    concurrency: int
    at: float
    info: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TaskCopy:
    """A task that is leased in the ledger, as it is handed out."""

    id: str
    fence: int
    queue: str
    priority: int
    body: bytes
    """The JSON object that ``POST /v1/tasks/claim`` gives."""


@dataclass(frozen=True, slots=True)
class ForeignResult:
    """A result as it arrived, not yet parsed: the JSON object of one message."""

    body: bytes
    source: str


Verdict = Literal["taken", "late", "unknown"]
"""``late``: a second result, or one for an old fence. ``unknown``: it names nothing and is a dead letter."""


class TaskTransport(Protocol):
    async def workers(self) -> Sequence[ForeignWorker]:
        """Return the living workers of other programs that this transport knows."""

    async def hand_out(self, tasks: Sequence[TaskCopy]) -> Sequence[str]:
        """Send copies; return the ids of those the broker holds now. Never raises because the broker is away."""

    async def outstanding(self, queue: str) -> Sequence[str]:
        """Return the ids of the copies that the broker still holds or has delivered without an answer."""

    async def withdraw(self, queue: str, ids: Sequence[str]) -> None:
        """Remove copies that nobody needs to run any more, as far as the broker can."""

    def start(self, settle: Callable[[ForeignResult], Awaitable[Verdict]]) -> None:
        """Receive results. Each is acknowledged after ``settle`` returned; on ``unknown`` it becomes a dead letter."""

    async def stop(self) -> None: ...
