"""The ports that an engine uses, chosen elsewhere by URL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from dalsegno.errors import StoreLost
from dalsegno.ports.archive import Archive
from dalsegno.ports.broker import Broker, Neighbours, Watch
from dalsegno.ports.clock import Clock
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.limits import Limits as LimitsPort
from dalsegno.ports.messages import DeadLetters, MessageSource, Publications, Publisher
from dalsegno.ports.published import PublishedData
from dalsegno.ports.records import Blobs, Records
from dalsegno.ports.task_transport import ForeignWorker, TaskTransport
from dalsegno.ports.transactions import Transactions

TIMER_INTERVAL = 0.004
"""Seconds between two polls for due timers, so that timers due in a burst fire together."""


ITEMS_PER_COMMIT = 200
"""Items of a split opened by one commit, so that no commit becomes too wide."""


Kind = Literal["messages", "retries", "statuses", "completions", "tasks", "results", "timers", "dead"]


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in one place of a server: a queue, a stream, a sorted set."""

    place: str
    kind: Kind
    messages: float
    waiting: float | None = 0.0
    """Age of the oldest message in seconds. None: something waits, and neither the server nor the ledger tells since
    when.
    """


@dataclass(frozen=True, slots=True)
class Measured:
    """What a server reports for ``/metrics``."""

    backlogs: Sequence[Backlog] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    """Other figures by name."""
    unconfirmed: float | None = None
    """Messages of this process that the server has not confirmed yet; None if it confirms none."""


class Server(Protocol):
    """A server besides the store's that this process is connected to."""

    name: str
    """What people call it: ``RabbitMQ``, ``Redis``."""
    url: str
    """Without its password."""

    def connected(self) -> bool: ...

    def problem(self) -> str:
        """Return what is wrong, as a sentence, or an empty string."""

    async def examine(self) -> Sequence[str]:
        """Ask the server itself, for ``doctor``: return what a person should know or mend, as sentences."""

    async def measure(self) -> Measured: ...


class Presence(Protocol):
    """Workers as other programs see them."""

    def show(self, describe: Callable[[], ForeignWorker]) -> None:
        """Show a worker of this process until the stack is closed. Its ``info`` says that it is ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    url: str = field(repr=False)  # it may hold a password
    ledger: Ledger
    broker: Broker
    archive: Archive
    blobs: Blobs
    records: Records
    published: PublishedData
    clock: Clock
    close: Callable[[], Awaitable[None]]
    limits: LimitsPort | None = None
    """None if the adapter has no limits by key. SQLite, PostgreSQL and memory have them."""
    neighbours: Neighbours | None = None
    """None if other processes are found by polling, or if there are none."""
    watch: Watch | None = None
    """None if other processes report their commits themselves, or if there are none."""
    transactions: Transactions | None = None
    """None if the store offers no transactions that a task could share with its step."""
    items_per_commit: int = ITEMS_PER_COMMIT
    """Largest number of items per commit. A store for which long commits are costly opens fewer items of a split at a
    time.
    """
    commits_at_once: int = 1
    """Batches of one process that the ledger accepts at a time. More than one pays off if another process does the
    work.
    """
    timer_interval: float = TIMER_INTERVAL
    """Seconds between two polls for due timers. Shorter if a poll itself waits for timers that are about to come
    due.
    """
    expect_writable: Callable[[], Awaitable[None]] | None = None
    """Raises if the store answers but accepts no writes. None if a readable store is always writable."""
    when_lost: Callable[[Callable[[StoreLost], None]], None] | None = None
    """Registers a callback, called from any thread, for the permanent loss of the store. None if the store cannot be
    lost that way.
    """
    servers: Sequence[Server] = ()
    """Servers besides the store's: brokers, Redis."""
    sources: Sequence[MessageSource] = ()
    """Where execution messages of other programs come from."""
    publisher: Publisher | None = None
    """Carries statuses and completions to other programs. None if no other program receives them."""
    publications: Publications | None = None
    """Marks of how far statuses are published. Only a stack with a publisher uses them."""
    dead_letters: Sequence[DeadLetters] = ()
    """Where messages of other programs lie that cannot be taken in."""
    presence: Sequence[Presence] = ()
    """Show the workers of this process to other programs."""
    task_transports: Sequence[TaskTransport] = ()
    """Hand tasks out to workers of other programs, besides ``/v1/tasks``."""
    step_by_step: bool = False
    """Each step is announced by a message of its own: no local continuation."""
