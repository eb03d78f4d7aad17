"""Transitions: the result of a step as pure data, and a ledger's replies to them."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Literal

from msgspec import Struct

from dalsegno.errors import OperatorError
from dalsegno.model.effect import (
    Effect,
    EndIfLast,
    ResolveSlot,
    SaveMachine,
    SettlePromise,
    SpawnToken,
    StoreOutput,
)
from dalsegno.model.event import Event, NewEvent, Numbered, recorded
from dalsegno.model.execution import EndState
from dalsegno.model.token import Lease

JOURNAL = "turns/"
"""Prefix of the outputs in which the journal of a machine is stored."""


class Park(Struct, frozen=True, gc=False):
    """Park the token again instead of consuming it: a wait, or a retry's delay. The token keeps its id.

    ``awaits`` names what else wakes it: ``signal:<name>`` (a signal that is in the mailbox already wakes it at
    once) or ``child:<execution>``. It is then ready with the reason ``arrival``. ``queue`` moves it to another
    one; only tokens without a limit key may be moved. ``again``: it is not parked, but ready at once, for the
    reason that woke it.
    """

    due: float | None
    data: bytes
    attempt: int
    awaits: str | None = None
    queue: str | None = None
    again: bool = False


class Transition(Struct, frozen=True, gc=False):
    """Consume (or park) one token of one execution and apply these effects, whole or not at all (L2).

    ``token`` is None for commands from outside (start, cancel, pause, resume).
    """

    execution: str
    effects: tuple[Effect, ...]
    events: tuple[NewEvent, ...] = ()
    token: str | None = None
    fence: int = 0
    scope: str = ""
    live: bool = True
    """The consumed token counted as live."""
    park: Park | None = None
    epoch: int = 0
    keep: tuple[str, ...] = ()
    """Spawned ready tokens that the worker asks to keep leased to itself."""
    worker: str = ""
    hand: int = 0
    """The attempt that a person settles; 0: a worker commits.

    A person's commit shows the token's fence, and applies whatever the token's state: ready, leased, parked or
    held. A later commit of its holder is stale (L4). ``worker`` is then an id of the decision, by which a
    repetition is recognised.
    """

    def digest(self) -> bytes:
        """Return a digest of the decision without its times.

        Equal digests mean that a step was repeated with the same result.
        """
        text = f"{self.token}/{self.park.attempt if self.park else 0}"
        if self.hand:
            # never equal to the digest of a worker, or of another person
            text += f"hand {self.fence}/{self.worker}/"
        for event in self.events:
            text += f"{event.kind}/{event.node}/"
        for effect in self.effects:
            if type(effect) is SpawnToken:  # the most frequent kinds, on the hot path
                text += f"s{effect.token.id}"
            elif type(effect) is SaveMachine:
                text += f"m{effect.version}"
            else:
                text += _mark(effect)
        return blake2b(text.encode(), digest_size=8).digest()


def _mark(effect: Effect) -> str:
    match effect:
        case ResolveSlot(barrier, slot, live):
            return f"r{barrier.id}/{slot}/{live}"
        case EndIfLast(scope):
            return f"l{scope}"
        case SettlePromise(completion):
            return f"p{completion.promise}/{completion.ok}"
        case StoreOutput(id=name) if name.startswith(JOURNAL):
            return ""  # which turns are written with a step depends on the process
        case _:
            return type(effect).__name__


class ReadyToken(Struct, frozen=True, gc=False):
    """A token that became ready in a commit and was not kept, to be announced."""

    token: str
    execution: str
    queue: str
    priority: int
    node: str = ""
    """The node that it runs or belongs to; empty if there is none, and in an announcement that was received."""


def handed_back(leases: Iterable[Lease]) -> list[ReadyToken]:
    """Return the announcements of tokens whose leases were released."""
    return [ReadyToken(each.token, each.execution, each.queue, each.priority, each.node) for each in leases]


class Applied(Struct, frozen=True, gc=False):
    kept: tuple[str, ...] = ()
    """Ids of the spawned tokens now leased to the committing worker, with fence 1."""
    ready: tuple[ReadyToken, ...] = ()
    ended: EndState | None = None
    next_due: float | None = None
    """The earliest time at which something this commit parked comes due."""
    owes: bool = False
    """The commit wrote into the outbox."""
    history: tuple[Numbered, ...] = ()
    """What the commit added to the history of its execution."""

    def events(self, execution: str) -> list[Event]:
        """Return what the commit added to the history, as it is read back. Made on request: few callers need it."""
        return [
            recorded(event, execution, seq, arrived, expected)
            for event, seq, arrived, expected in self.history
        ]


class AlreadyApplied(Struct, frozen=True, gc=False):
    """The same step was committed with the same result before; nothing changed now."""


StaleReason = Literal["fence", "version", "scope", "finished", "unknown", "pending", "paused"]
"""pending: the execution has not begun, and the request is valid only afterwards. paused: its deadline does not
pass before it is resumed.
"""


class Stale(Struct, frozen=True, gc=False):
    """The commit came too late and changed nothing (L4, L5)."""

    reason: StaleReason
    ready: tuple[ReadyToken, ...] = ()
    """To be announced: its token had a limit key, and these are next in line for the slot it held."""


class Deferred(Struct, frozen=True, gc=False):
    """Another process holds the execution's row; send the transition again with the next batch."""


class Refused(Struct, frozen=True, gc=False):
    """The store cannot hold what this transition carries; the step fails with this message."""

    message: str


class Unconfirmed(Struct, frozen=True):
    """The store has stored the others of the batch, but has not confirmed this one.

    As if its commit alone had failed with ``error``: it may be stored or not, and can be sent again.
    """

    error: OperatorError


Outcome = Applied | AlreadyApplied | Stale | Deferred | Refused | Unconfirmed
