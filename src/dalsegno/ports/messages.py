"""Execution messages of other programs that arrive, and statuses and completions that leave."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from msgspec import Struct

from dalsegno.model.event import Event

Adopt = Literal["any", "known", "off"]
"""Which messages start executions or arrive in them: those with any definition, with deployed ones only, or none."""


@dataclass(frozen=True, slots=True)
class ForeignMessage:
    """An execution message as it arrived, not yet parsed."""

    body: bytes
    source: str
    """The queue or key it came from."""
    identity: str | None = None
    """What the sender identifies it by: the AMQP ``message_id``, the id of a planted timer. None: the hash of its
    body.
    """
    headers: Mapping[str, str] = field(default_factory=dict)
    timer: bool = False
    """A planted timer that came due: a wait node it names counts as run."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The outcome of a foreign message. What it caused is committed."""

    outcome: Literal["applied", "duplicate", "refused"]
    execution: str = ""
    reason: str = ""
    """Why it was refused, as a sentence, with JSON pointers where the definition is at fault."""
    code: str = ""


class Intake(Protocol):
    """The engine's side: takes a foreign message into the ledger."""

    async def take(self, message: ForeignMessage) -> Taken:
        """Return after the transition is committed.

        Invalid messages are ``refused``. Raise ``Unavailable`` while the store is away; any other exception is a
        fault of the system, for which the source tries again later.
        """


class MessageSource(Protocol):
    """A place from which foreign messages come. It acknowledges a message only after ``Intake.take`` returned."""

    def start(self, intake: Intake) -> None: ...

    async def stop(self) -> None:
        """Take nothing more; what was received and not taken goes back."""


@dataclass(frozen=True, slots=True)
class DeadMessage:
    """A message that could not be taken in, as it came."""

    id: str
    source: str
    """The queue or key it came from."""
    body: bytes
    reason: str
    code: str
    at: float
    headers: Mapping[str, str] = field(default_factory=dict)


class DeadLetters(Protocol):
    """A place of a broker where messages lie that a person should look at. Raise ``Unavailable`` while it is away."""

    name: str
    """The server that has them: ``RabbitMQ``, ``Redis``."""

    async def list(self, limit: int) -> Sequence[DeadMessage]:
        """Return the newest, newest first."""

    async def get(self, id: str) -> DeadMessage | None: ...

    async def requeue(self, id: str) -> bool:
        """Send it again where it came from, under the same identity. False if it is not there."""

    async def drop(self, id: str) -> bool: ...


class OutgoingMessage(Struct, frozen=True):
    kind: Literal["status", "completion"]
    message_id: str
    body: bytes
    priority: int = 0
    traceparent: str = ""
    """The trace that readers' spans join; empty: none."""


class Claims(Struct):
    """Executions whose statuses the caller may publish now, and those that another process publishes."""

    marks: dict[str, int]
    """How far each is published: the number of the last event that the broker has confirmed."""
    held: set[str]


class News(Struct):
    """What an execution's statuses and its completion are made from."""

    workflow: str
    definition: str
    kind: str
    state: str
    priority: int
    tags: tuple[tuple[str, str], ...]
    events: list[Event]
    """Those after a number, in order."""
    is_told: bool
    """The execution has ended and its history is complete."""
    context: bytes | None = None
    """Given once the history is complete."""


class Unpublished(Struct, frozen=True):
    executions: tuple[str, ...]
    after: str
    """Where the next page begins; empty at the end."""


def unpublished_page(rows: Sequence[tuple[str, object]], limit: int) -> Unpublished:
    """Return the page of these marks: each an execution, and whether it has events that are not confirmed."""
    after = rows[-1][0] if len(rows) == limit else ""
    return Unpublished(tuple(name for name, has_more in rows if has_more), after)


class Publications(Protocol):
    """Durable marks of how far the statuses of executions are published.

    An execution created with ``publishes`` has one from its creation until its completion is confirmed. Until then
    retention keeps it, for seven days at most. One process publishes an execution at a time, so that order and number
    are kept.
    """

    async def claim(self, owner: str, executions: Sequence[str], seconds: float) -> Claims:
        """Claim marks that no other process has, for so many seconds. Executions without a mark are in neither part."""

    async def confirm(self, owner: str, confirmed: Mapping[str, int], ended: Collection[str] = ()) -> None:
        """Move marks, never backwards, and give up their claims; remove the marks of ``ended``.

        Marks that another process has claimed meanwhile stay as they are.
        """

    async def news(self, after: Mapping[str, int], limit: int = 1000) -> dict[str, News]:
        """Return the executions that exist, each with at most ``limit`` events after a number. In few round trips,
        however many they are. If a history is complete, the events read are up to its end.
        """

    async def last_events(self, executions: Sequence[str]) -> dict[str, int]:
        """Return the number of the last event of each execution; of those that have ended it may be missing."""

    async def unfinished(self, after: str = "", limit: int = 1000) -> Unpublished:
        """Return one bounded page of a walk through all marks, in the order of the executions' ids.

        Of the next ``limit`` after ``after`` it contains those with events that are not confirmed, claimed or not.
        """


class Publisher(Protocol):
    """Carries messages to a broker, each with a confirmation."""

    def publish(self, messages: Sequence[OutgoingMessage], answered: Callable[[int], None]) -> None:
        """Publish in this order. Once all are answered, ``answered`` receives how many, from the first on, the broker
        has confirmed.

        A missing or negative confirmation, or a connection that is away or blocked, ends the count: the caller
        publishes the rest again later. It never raises for those.
        """

    def ready(self) -> bool:
        """Return whether publishing is worth a try now."""

    def on_ready(self, callback: Callable[[], None]) -> None:
        """Call when the broker can be reached again."""
