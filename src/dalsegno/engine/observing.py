"""Whoever wants to watch an engine at work: metrics, traces. Without one, watching costs a comparison with None."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dalsegno.model.failure import Failure
from dalsegno.model.token import Lease
from dalsegno.model.transition import Applied, Transition

if TYPE_CHECKING:
    from dalsegno.engine.remote_sessions import Held


class Observer(Protocol):
    """Called on the engine's loop, in the middle of its work: an observer counts and returns."""

    def began(self, lease: Lease) -> None:
        """A local worker runs a step from now on, in this asyncio task."""

    def stepped(self, lease: Lease, seconds: float) -> None:
        """It has run and committed it, or given it up."""

    def committed(self, transitions: int, seconds: float) -> None:
        """A batch was written."""

    def applied(self, transition: Transition, applied: Applied) -> None:
        """One transition of this process changed an execution."""

    def remote(self, held: Held, failure: Failure | None, now: float) -> None:
        """The answer of a remote worker was committed."""


class Both:
    """Two observers as one."""

    def __init__(self, first: Observer, second: Observer) -> None:
        self.first = first
        self.second = second

    def began(self, lease: Lease) -> None:
        self.first.began(lease)
        self.second.began(lease)

    def stepped(self, lease: Lease, seconds: float) -> None:
        self.second.stepped(lease, seconds)
        self.first.stepped(lease, seconds)

    def committed(self, transitions: int, seconds: float) -> None:
        self.first.committed(transitions, seconds)
        self.second.committed(transitions, seconds)

    def applied(self, transition: Transition, applied: Applied) -> None:
        self.first.applied(transition, applied)
        self.second.applied(transition, applied)

    def remote(self, held: Held, failure: Failure | None, now: float) -> None:
        self.first.remote(held, failure, now)
        self.second.remote(held, failure, now)
