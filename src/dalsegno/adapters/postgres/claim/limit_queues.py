"""Lines of tokens with a limit key, and the locks of limit keys.

- Lines: a claim reads everything first and then sees each line as a cursor; see ``core.settlement.claims``.
- Locks: a claim takes the locks of the keys. A lock held for long must not block claims of other keys.
- Removed tokens: an ending frees the slots that it sees. A concurrent claim may lease a token of the same
  execution unseen, and not see the ending either; it could then close a line behind a slot that is never freed.
  The removal of the token waits for the claim, so the removal of a leased token opens the lines of its key. Slots
  are not counted: a line opened twice, or without need, only costs one more look.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from time import monotonic
from typing import Any, TypeVar

import asyncpg
from msgspec import Struct

from dalsegno.adapters import limit_lines
from dalsegno.adapters.limit_lines import Head, LineCursor
from dalsegno.adapters.postgres.commit.read_set import Key
from dalsegno.adapters.postgres.messaging.listener import CHANNEL, NEWS
from dalsegno.adapters.postgres.store import PostgresStore, Row, Transaction
from dalsegno.adapters.rows import allowance
from dalsegno.core.settlement.claims import SUSPECT_LOSSES, Place, Suspicion
from dalsegno.core.settlement.limits import bound_of
from dalsegno.errors import OperatorError
from dalsegno.model.limits import Rate
from dalsegno.model.token import Lease


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


class Candidate(Struct, frozen=True, gc=False):
    """A ready token that a claim has locked."""

    lease: Lease
    """Its lease, if it is chosen."""
    execution: int
    """The number of its execution."""
    turn: int
    allowance: str | None
    runs: bool
    """Its execution runs, and its scopes are open."""

    @property
    def name(self) -> Key:
        return self.lease.execution, self.lease.token

    @property
    def place(self) -> Place:
        return -self.lease.priority, self.lease.ready_at, self.turn


def candidate(columns: Sequence[Any]) -> Candidate:
    """Return a token from the columns of ``leases.plain``."""
    *lease, execution, turn, allowance, runs = columns
    return Candidate(Lease(*lease), execution, turn, allowance, runs)


class OutOfHeads(Exception):
    """More tokens of a line are needed than were read: they are read, and the claim chooses again."""


class KeyUse(limit_lines.KeyUse):
    """Starts are read before the claim chooses, and noted after it."""

    def __init__(self, row: Row, now: float) -> None:
        key, concurrency, starts, period, slots, self.last = row
        super().__init__(key, allowance(concurrency, starts, period), slots, now)
        self.started: list[Rate] = []
        """The rates of the tokens that this claim has taken."""
        self.starts: dict[int, float] = {}
        """Stored starts by number, if a rate may need them."""

    def rates(self, allowances: Sequence[str | None]) -> set[Rate]:
        bounds = (bound_of(own, self.rule) for own in {*allowances})
        return {bound.rate for bound in bounds if bound.rate is not None}

    def nth_start(self, n: int) -> float | None:
        taken = len(self.started)
        return self.now if n <= taken else self.starts.get(self.last - (n - taken) + 1)

    def note_start(self, rate: Rate) -> None:
        self.started.append(rate)


class LimitQueueCursor(LineCursor[Candidate]):
    """``heads``: the first tokens of the line, with at most ``at_a_time`` innocent ones."""

    def __init__(
        self, stored: Row, use: KeyUse, heads: Sequence[Candidate], at_a_time: int, suspicion: Suspicion
    ) -> None:
        queue, key, turn_at, turn = stored
        super().__init__(queue, key, (turn_at, turn), use, suspicion)
        innocent = [token for token in heads if token.lease.losses < SUSPECT_LOSSES]
        self.complete = len(innocent) < at_a_time
        self.innocent.extend(_head(token) for token in innocent if token.runs)
        suspects = [token for token in heads if token.lease.losses >= SUSPECT_LOSSES]
        self.suspects = [_head(token) for token in suspects if token.runs]

    def read_on(self) -> None:
        raise OutOfHeads

    def read_suspects(self) -> list[Head[Candidate]]:
        raise OutOfHeads


def _head(token: Candidate) -> Head[Candidate]:
    return Head(token.place, token.lease.losses, token.allowance, token)
