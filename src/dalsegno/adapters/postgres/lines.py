"""Lines of tokens with a limit key as one claim sees them; see ``core.settlement.lines``. Everything is read before."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from dalsegno.adapters.postgres.store import Row
from dalsegno.core.settlement.claim import SUSPECT_LOSSES
from dalsegno.core.settlement.limits import Room, bound_of, room
from dalsegno.core.settlement.lines import Place
from dalsegno.model.limits import Allowance, Rate

PRIORITY, LOSSES, READY_AT, EXECUTION, TURN, ALLOWANCE, RUNS, LINE = 8, 10, 12, 17, 18, 19, 20, 21
"""Columns of ``leases.plain`` and ``leases.heads``. Before them comes the lease."""
LEASE = slice(0, 17)


def place(row: Row) -> Place:
    return -row[PRIORITY], row[READY_AT], row[TURN]


class OutOfHeads(Exception):
    """More tokens of a line are wanted than were read: they are read, and the claim chooses again."""


class Suspicion:
    """A worker has at most one token at a time that killed workers before."""

    __slots__ = ("allowed",)

    def __init__(self, *, allowed: bool) -> None:
        self.allowed = allowed


class KeyUse:
    """How much of a key is in use, the same for all its lines in one claim."""

    def __init__(self, row: Row, now: float) -> None:
        self.key, concurrency, starts, period, self.slots, self.last = row
        self.rule = Allowance(concurrency, Rate(starts, period) if starts is not None else None)
        self.started: list[Rate] = []
        """The rates of what this claim has taken."""
        self.starts: dict[int, float] = {}
        """Of those that are stored, by number; only those that the rates may ask for."""
        self._now = now

    def rates(self, allowances: Sequence[str | None]) -> set[Rate]:
        bounds = (bound_of(own, self.rule) for own in {*allowances})
        return {bound.rate for bound in bounds if bound.rate is not None}

    def nth_start(self, n: int) -> float | None:
        taken = len(self.started)
        return self._now if n <= taken else self.starts.get(self.last - (n - taken) + 1)

    def room(self, own: str | None) -> Room:
        return room(bound_of(own, self.rule), self.slots, self.nth_start, self._now)

    def take(self, own: str | None) -> None:
        """One more of the key is leased."""
        self.slots += 1
        rate = bound_of(own, self.rule).rate
        if rate is not None:
            self.started.append(rate)


class LineInClaim:
    def __init__(
        self, stored: Row, use: KeyUse, heads: Sequence[Row], at_a_time: int, suspicion: Suspicion
    ) -> None:
        self.queue, self.key, turn_at, turn = stored
        self.turn = (turn_at, turn, self.queue, self.key)
        self.opens_at: float | None = None
        self.full = False
        self.served = False
        self._use = use
        self._suspicion = suspicion
        innocent = [row for row in heads if row[LOSSES] < SUSPECT_LOSSES]
        self._complete = len(innocent) < at_a_time
        """Whether all innocent tokens of the line are known."""
        self._innocent = deque(row for row in innocent if row[RUNS])
        self._suspects = [row for row in heads if row[LOSSES] >= SUSPECT_LOSSES and row[RUNS]]

    def place(self) -> Place | None:
        head = self.head()
        if head is None:
            return None
        found = self._use.room(head[ALLOWANCE])
        self.full, self.opens_at = not found.free, found.opens_at
        return place(head) if found.free else None

    def take(self) -> Row:
        head = self.head()
        if head is None:
            raise LookupError(f"nothing is in line for '{self.key}'")
        if head[LOSSES] >= SUSPECT_LOSSES:
            self._suspicion.allowed = False
            self._suspects = []
        else:
            self._innocent.popleft()
        self._use.take(head[ALLOWANCE])
        self.served = True
        return head

    def head(self) -> Row | None:
        if not self._innocent and not self._complete:
            raise OutOfHeads
        suspect = self._suspects[0] if self._suspects and self._suspicion.allowed else None
        if suspect is not None and (not self._innocent or place(suspect) < place(self._innocent[0])):
            return suspect
        return self._innocent[0] if self._innocent else None
