"""Lines of tokens with a limit key, and the locks of limit keys.

- Lines: a claim reads everything first and then sees each line as a cursor; see ``core.settlement.claim_order``.
- Locks: a claim takes the locks of the keys. A lock held for long must not block claims of other keys.
- Removed tokens: an ending frees the slots that it sees. A concurrent claim may lease a token of the same
  execution unseen, and not see the ending either; it could then close a line behind a slot that is never freed.
  The removal of the token waits for the claim, so the removal of a leased token opens the lines of its key. Slots
  are not counted: a line opened twice, or without need, only costs one more look.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from time import monotonic
from typing import TypeVar

import asyncpg

from dalsegno.adapters.postgres.messaging.listener import CHANNEL, NEWS
from dalsegno.adapters.postgres.store import PostgresStore, Row, Transaction
from dalsegno.core.settlement.claim_order import Place, Suspicion
from dalsegno.core.settlement.claims import SUSPECT_LOSSES
from dalsegno.core.settlement.limits import Room, bound_of, room
from dalsegno.errors import OperatorError
from dalsegno.model.limits import Allowance, Rate


async def open_lines(tx: Transaction, keys: Collection[str]) -> bool:
    """Open the lines of these keys; return True if any was closed.

    A transaction takes all keys at once and last: always after rows, and in one order, which avoids deadlocks.
    """
    if not keys:
        return False
    await tx.fetch("limits.lock", list(keys))
    return bool(await tx.fetch("limits.open", list(keys)))


async def announce_opened(store: PostgresStore) -> None:
    """Wake waiting workers. If the message is lost, their next poll finds the tokens."""
    with contextlib.suppress(OperatorError):
        await store.fetch("limits.tell", CHANNEL, NEWS)


T = TypeVar("T")
TakeKeys = Callable[[Sequence[str]], Awaitable[set[str]]]
"""Locks keys until the transaction ends and returns those it got."""

STUCK_SECONDS = 5.0
"""After a wait for a lock has failed, it is only tried without waiting for this long."""


class KeysStuck(Exception):
    """A lock could not be taken in time; it is not known which."""


class KeyLocks:
    """Locks of limit keys.

    Mostly they are held for a moment, by a commit or another claim, so a claim waits for them: if it skipped the
    line, its tokens would not be announced again.
    """

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._stuck: dict[str, float] = {}
        """Keys, and until when they are tried without waiting."""

    async def run(self, job: Callable[[Transaction, TakeKeys], Awaitable[T]]) -> T:
        """Run a job in a transaction; restart it without waiting if a lock is held for long."""
        try:
            async with self._store.transaction() as tx:
                return await job(tx, lambda keys: self._take(tx, keys, waits=True))
        except KeysStuck:
            async with self._store.transaction() as tx:
                return await job(tx, lambda keys: self._take(tx, keys, waits=False))

    async def _take(self, tx: Transaction, keys: Sequence[str], *, waits: bool) -> set[str]:
        now = monotonic()
        self._stuck = {key: until for key, until in self._stuck.items() if until > now}
        try:
            rows = await tx.fetch(
                "limits.lock_soon", keys, [waits and key not in self._stuck for key in keys]
            )
        except asyncpg.LockNotAvailableError:
            raise KeysStuck from None
        taken = {key for (key,) in rows}
        if not waits:
            self._stuck.update((key, now + STUCK_SECONDS) for key in keys if key not in taken)
        return taken


PRIORITY, LOSSES, READY_AT, EXECUTION, TURN, ALLOWANCE, RUNS, LINE = 8, 10, 12, 17, 18, 19, 20, 21
"""Columns of ``leases.plain`` and ``leases.heads``, after those of the lease."""
LEASE = slice(0, 17)


def place(row: Row) -> Place:
    return -row[PRIORITY], row[READY_AT], row[TURN]


class OutOfHeads(Exception):
    """More tokens of a line are needed than were read: they are read, and the claim chooses again."""


class KeyUse:
    """Current use of a key, shared by all its lines in one claim."""

    def __init__(self, row: Row, now: float) -> None:
        self.key, concurrency, starts, period, self.slots, self.last = row
        self.rule = Allowance(concurrency, Rate(starts, period) if starts is not None else None)
        self.started: list[Rate] = []
        """The rates of the tokens that this claim has taken."""
        self.starts: dict[int, float] = {}
        """Stored starts by number, if a rate may need them."""
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
        """Count one more lease of the key."""
        self.slots += 1
        rate = bound_of(own, self.rule).rate
        if rate is not None:
            self.started.append(rate)


class LimitQueueCursor:
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
        """All innocent tokens of the line are known."""
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
