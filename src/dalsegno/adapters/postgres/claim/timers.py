"""Due timers: made ready, or handed to a worker of this process that waits for work."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Sequence

from msgspec import Struct

from dalsegno.adapters.postgres.claim.claims import Claims
from dalsegno.adapters.postgres.claim.waiting_workers import WaitingWorkers
from dalsegno.adapters.postgres.commit.read_set import Key
from dalsegno.adapters.postgres.commit.workspace import PostgresWorkspace
from dalsegno.adapters.postgres.store import PostgresStore, Row
from dalsegno.core.settlement import ready_token, wake_row
from dalsegno.errors import OperatorError, Unavailable
from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken
from dalsegno.ports.ledger import Woken

IS_PLAIN, IS_LEASED, WOKEN = 3, 4, 5
"""Columns of ``leases.wake_plain``: the token is awake now (NULL: no token is due), it is leased, and the rest as
for a claim, and like there read by position.
"""
READY_AT = WOKEN + 12
READY = operator.itemgetter(0, 1, 7, 8, 5)
"""The columns of a ReadyToken among those of a lease."""
AHEAD = 0.003
"""Seconds, about the duration of a wake. What comes due during it is leased with it and given to the worker at its
time; in a burst that is most of the timers. Without a waiting worker nothing is taken ahead: another process may
be free sooner.
"""
TIMER_INTERVAL = 0.002
NO_WORKER: tuple[str, list[str], int] = ("", [], 0)


class PlainWake(Struct, frozen=True):
    rows: list[Row]
    """Rows of ``leases.wake_plain``."""
    leases: list[Lease]
    """What was leased to the worker that waited here."""
    is_handed_back: bool = False
    """That worker no longer waited, and the leases were handed back."""


class TimerWaker:
    def __init__(self, store: PostgresStore, claims: Claims, waiting_workers: WaitingWorkers) -> None:
        self.store = store
        self.claims = claims
        self.waiting_workers = waiting_workers

    async def wake(self, limit: int) -> Woken:
        """Wake due tokens, usually in one statement.

        What comes due meanwhile is left to the next call: in a burst there is always more, and nothing is
        announced before this returns.
        """
        woken = await self._wake_plain(limit)
        seen, due, opens_at = woken.rows[0][:IS_PLAIN]
        now = self.store.saw(seen)
        plain = [row for row in woken.rows if row[IS_PLAIN]]
        ready = tuple(
            ReadyToken(*READY(row[WOKEN:])) for row in plain if woken.is_handed_back or not row[IS_LEASED]
        )
        others = sum(row[IS_PLAIN] is False for row in woken.rows)
        leased_count = 0 if woken.is_handed_back else len(woken.leases)
        if not others and not _is_due(opens_at, now):
            return Woken(ready, _first(due, opens_at), leased_count)
        if others:
            ready += await self._wake_by_rules(limit - len(plain))
        if _is_due(opens_at, now):
            ready += tuple(await self.claims.limited.open_due())
        [(_, due, opens_at)] = await self.store.fetch("leases.soonest")
        return Woken(ready, _first(due, opens_at), leased_count)

    async def _wake_plain(self, limit: int) -> PlainWake:
        """Wake tokens and lease them to a worker that waits here. If it no longer waits, they are ready for all."""
        waiting = self.waiting_workers.reserve()
        wanted = (waiting.worker, list(waiting.queues), waiting.limit) if waiting is not None else NO_WORKER
        now = self.store.given_now()
        ahead = AHEAD if waiting is not None and now is None else 0.0
        try:
            rows = await self.store.fetch("leases.wake_plain", now, limit, ahead, *wanted)
            if ahead:
                await self._until_all_are_due(rows)
        except BaseException as error:
            if waiting is not None:
                lost = error if isinstance(error, OperatorError) else Unavailable("a wake was interrupted")
                self.waiting_workers.fail_reservation(waiting, lost)
            raise
        if waiting is None:
            return PlainWake(rows, [])
        leases = [self.claims.given(waiting.worker, row[WOKEN:]) for row in rows if row[IS_LEASED]]
        if self.waiting_workers.keep(waiting, leases):
            return PlainWake(rows, leases)
        await self.claims.release(waiting.worker, leases)
        return PlainWake(rows, leases, is_handed_back=True)

    async def _until_all_are_due(self, rows: list[Row]) -> None:
        """Wait until all rows are due: nothing begins or can be claimed before its time."""
        self.store.saw(rows[0][0])
        last = max((row[READY_AT] for row in rows if row[IS_LEASED]), default=0.0)
        while (left := last - self.store.now()) > 0:  # noqa: ASYNC110 - time itself; some loops count in milliseconds
            await asyncio.sleep(left)

    async def _wake_by_rules(self, limit: int) -> tuple[ReadyToken, ...]:
        """Wake tokens that need the rules: paused executions, scopes that may be closed, barriers, limits."""
        async with self.store.transaction() as tx:
            rows = await tx.fetch("leases.due", self.store.given_now(), limit, 0.0)
            return await self.claims.change(tx, rows, _wake)


def _is_due(at: float | None, now: float) -> bool:
    return at is not None and at <= now


def _first(*times: float | None) -> float | None:
    return min((at for at in times if at is not None), default=None)


def _wake(rows: PostgresWorkspace, keys: Sequence[Key], now: float) -> tuple[ReadyToken, ...]:
    tokens = [rows.token(*key) for key in keys]
    return tuple(ready_token(token) for token in tokens if token is not None and wake_row(token, rows, now))
