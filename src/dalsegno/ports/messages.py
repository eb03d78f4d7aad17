"""Execution messages of other programs that arrive, and statuses and completions that leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol


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
    """What became of a foreign message. Whatever it caused is committed."""

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
class OutgoingMessage:
    kind: Literal["status", "completion"]
    message_id: str
    body: bytes
    priority: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)


class Publisher(Protocol):
    """Carries messages to a broker, each with a confirmation."""

    async def publish(self, messages: Sequence[OutgoingMessage]) -> int:
        """Publish in this order; return how many, from the first on, the broker has confirmed.

        A missing or negative confirmation, or a connection that is away or blocked, ends the count: the caller
        publishes the rest again later. It never raises for those.
        """

    def ready(self) -> bool:
        """Return whether publishing is worth a try now."""

    def on_ready(self, callback: Callable[[], None]) -> None:
        """Call when the broker can be reached again."""
