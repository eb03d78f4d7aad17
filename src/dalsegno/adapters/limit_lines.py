"""Lines of tokens with a limit key, as one claim of an SQL store sees them; see
``core.settlement.claims``.

A store reads lines, keys and tokens in its own way. Which token of a line is next, if its limit
leaves room, and how the claim leaves the line is decided here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Generic, TypeVar

from msgspec import Struct

from dalsegno.core.settlement.claims import SUSPECT_LOSSES, Place, Suspicion
from dalsegno.core.settlement.limits import Room, bound_of, room
from dalsegno.model.limits import Allowance, Rate

T = TypeVar("T")

SPARE_LINES = 32
"""Lines read in addition to those that may be needed: some turn out to be full or empty."""
COUNTED = 1000
"""Waiting tokens of a key up to which they are counted exactly."""


def heads_of_each(wanted: int, lines: int) -> int:
    """Return how many tokens of each line a claim reads first."""
    return max(2, wanted // max(lines, 1) + 1)


class KeyUse(ABC):
    """Current use of a key, shared by all its lines in one claim."""

    def __init__(self, key: str, rule: Allowance, slots: int, now: float) -> None:
        self.key = key
        self.rule = rule
        """The operators' rule."""
        self.slots = slots
        self.now = now

    @abstractmethod
    def nth_start(self, n: int) -> float | None:
        """Return when the start was that is ``n`` starts ago; those of this claim count."""

    @abstractmethod
    def note_start(self, rate: Rate) -> None:
        """Note a start of this claim."""

    def room(self, own: str | None) -> Room:
        """Return if a token with this allowance of its own may start."""
        return room(bound_of(own, self.rule), self.slots, self.nth_start, self.now)

    def take(self, own: str | None) -> None:
        """Count one more lease of the key."""
        self.slots += 1
        rate = bound_of(own, self.rule).rate
        if rate is not None:
            self.note_start(rate)


class Head(Struct, Generic[T], frozen=True, gc=False):
    """A token at the beginning of a line."""

    place: Place
    losses: int
    allowance: str | None
    token: T
    """What the claim leases, as the store has read it."""


class LineCursor(ABC, Generic[T]):
    """A line in one claim: see ``core.settlement.claims.Line``."""

    def __init__(
        self, queue: str, key: str, turn: tuple[float, int], use: KeyUse, suspicion: Suspicion
    ) -> None:
        self.queue = queue
        self.key = key
        self.turn = (*turn, queue, key)
        self.opens_at: float | None = None
        """When its rate allows the next start, if only that stops it."""
        self.full = False
        self.served = False
        self.taken = 0
        """Innocent tokens that were taken."""
        self.innocent: deque[Head[T]] = deque()
        """Those that were read and may run."""
        self.complete = False
        """All innocent tokens of the line are known."""
        self.suspects: list[Head[T]] | None = None
        """Tokens that killed workers before and may run; None: not read yet."""
        self._use = use
        self._suspicion = suspicion

    @abstractmethod
    def read_on(self) -> None:
        """Read innocent tokens until one may run or the line is complete."""

    @abstractmethod
    def read_suspects(self) -> list[Head[T]]:
        """Read the first token that killed workers before, if it may run."""

    def place(self) -> Place | None:
        head = self.head()
        if head is None:
            return None
        found = self._use.room(head.allowance)
        self.full, self.opens_at = not found.free, found.opens_at
        return head.place if found.free else None

    def take(self) -> T:
        head = self.head()
        if head is None:
            raise LookupError(f"nothing is in line for '{self.key}'")
        if head.losses >= SUSPECT_LOSSES:
            self._suspicion.allowed = False
            self.suspects = []
        else:
            self.innocent.popleft()
            self.taken += 1
        self._use.take(head.allowance)
        self.served = True
        return head.token

    def head(self) -> Head[T] | None:
        """Return the next token, whether its limit leaves room or not."""
        if not self.innocent and not self.complete:
            self.read_on()
        suspect = self._suspect() if self._suspicion.allowed else None
        if suspect is not None and (not self.innocent or suspect.place < self.innocent[0].place):
            return suspect
        return self.innocent[0] if self.innocent else None

    def _suspect(self) -> Head[T] | None:
        if self.suspects is None:
            self.suspects = self.read_suspects()
        return self.suspects[0] if self.suspects else None
