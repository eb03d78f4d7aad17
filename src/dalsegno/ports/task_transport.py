"""Tasks handed out to workers of other programs over a broker, and their results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

OURS = "dalsegno"
"""The name in ``info`` under which a worker of this engine gives its version."""


@dataclass(frozen=True, slots=True)
class ForeignWorker:
    """A living worker of another program."""

    id: str
    queues: tuple[str, ...]
    concurrency: int
    """0 if it does not state it."""
    at: float
    """When it was last heard of, by its own clock; 0 if it does not say."""
    info: Mapping[str, Any] = field(default_factory=dict)
    lives_for: float = 15.0
    """Seconds after which it is dead unless it is heard of again."""


@dataclass(frozen=True, slots=True)
class TaskCopy:
    """A task that is leased in the ledger, as it is handed out."""

    id: str
    fence: int
    queue: str
    priority: int
    body: bytes
    """The JSON object that ``POST /v1/tasks/claim`` gives."""
    deadline: float | None = None
    """After which the task has failed with a timeout."""
    traceparent: str = ""
    """The trace of its execution, also in ``body``."""


@dataclass(frozen=True, slots=True)
class HandedOut:
    """A copy that the broker holds, or has delivered.

    ``waiting``: no worker has it. ``running``: ``worker`` has it, for ``seconds``. ``acknowledged``: its worker has
    finished it; its result may be on its way.
    """

    id: str
    fence: int
    state: Literal["waiting", "running", "acknowledged"]
    worker: str = ""
    seconds: float = 0.0
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class QueueReport:
    """What a broker knows about the copies of one queue."""

    copies: Sequence[HandedOut] | None
    """All of them. None if this broker cannot list them."""
    returned: Sequence[tuple[str, int]] = ()
    """Copies that came back because their worker is gone, by id and fence. Each is removed when it is withdrawn."""
    emptied: bool = False
    """The broker has lost everything that was handed out before; for one that cannot list its copies."""


@dataclass(frozen=True, slots=True)
class ForeignResult:
    """A result as it arrived, not yet parsed: the JSON object of one message."""

    body: bytes
    source: str


@dataclass(frozen=True, slots=True)
class Settlement:
    """What became of a result. Whatever it caused is committed.

    ``late``: a second result, or one for an old fence. ``unknown``: it names nothing, or cannot be read, and is a
    dead letter for ``reason``.
    """

    verdict: Literal["taken", "late", "unknown"]
    reason: str = ""
    code: str = ""
    queue: str = ""
    id: str = ""
    fence: int = 0
    """The answered copy: it can be removed."""


Settle = Callable[[ForeignResult], Awaitable[Settlement]]
"""Commits what a result causes. Waits while the store is away; raises nothing but a cancellation."""


class TaskTransport(Protocol):
    """Carries copies of tasks and their results. None of its calls raises because the broker is away.

    One orchestrator at a time uses it, between ``start`` and ``stop``; copies that another one handed out are found
    by ``report``.
    """

    name: str
    """What people call the broker: ``Redis``, ``RabbitMQ``."""
    lists_copies: bool
    """Whether ``report`` lists the copies."""
    brings_announcements: bool
    """Whether ready tokens of its queues are announced to it, and not to the stack's broker."""

    async def workers(self, queues: Sequence[str]) -> Sequence[ForeignWorker] | None:
        """Return the living workers of other programs. ``queues``: those known to be handed out, for a broker that
        knows the workers of a queue only. None: it cannot be said now.
        """

    async def announced(self, queue: str, seconds: float) -> None:
        """Wait, not longer than this, for an announcement that tokens of this queue are ready. Only for a transport
        that ``brings_announcements``.
        """

    async def hand_out(self, tasks: Sequence[TaskCopy]) -> Sequence[str]:
        """Send copies; return the ids of those that the broker certainly holds now."""

    async def report(self, queue: str) -> QueueReport | None:
        """Return what the broker knows about this queue. None: it cannot be said now."""

    async def withdraw(self, queue: str, copies: Sequence[tuple[str, int]]) -> None:
        """Remove copies, by id and fence, that no longer need to run, as far as the broker can."""

    def start(self, settle: Settle) -> None:
        """Receive results. Each is acknowledged after ``settle`` returned."""

    def is_drained(self) -> bool:
        """Return whether all results that were there at ``start`` have been settled."""

    async def stop(self) -> None: ...


class Distribution(Protocol):
    """The role of a process that hands tasks out over transports."""

    async def renew_leases(self) -> None:
        """Keep what was handed out before: nothing is lost only because no process with this role ran for a while."""

    async def run(self) -> None: ...

    def lost(self) -> int:
        """Return how many tasks this process has handed out again because their worker was dead."""

    def results(self) -> Mapping[tuple[str, str], int]:
        """Return the number of results that this process has taken in, by broker and verdict."""
