"""PostgresStore: one database, the connections to it, its clock, and numbers for executions.

- Numbers: the day of the start in the upper bits, then a counter. History is partitioned by them.
- Clock: the database's, as estimated by this process.
- Snapshots: several reads at one moment, each by an index in its order.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg

from dalsegno.adapters.postgres.connections import ConnectionMode, ConnectionRecycler, connect, find_mode
from dalsegno.adapters.postgres.errors import connecting, driver_errors
from dalsegno.adapters.postgres.migration import migrate
from dalsegno.adapters.postgres.statements import SQL
from dalsegno.ports.clock import Clock

DAY = 86_400
DAY_BITS = 40
"""Bits of an execution's number below its day."""
BLOCK = 1000
"""Numbers reserved at once: the increment of their sequence."""


def day_of(number: int) -> int:
    return number >> DAY_BITS


def day_at(time: float) -> int:
    return int(time // DAY)


def numbers_of(day: int) -> tuple[int, int]:
    """Return the first number of a day and the first of the next."""
    return day << DAY_BITS, (day + 1) << DAY_BITS


class Numbers:
    """The numbers reserved by this process."""

    def __init__(self) -> None:
        self._left: list[int] = []
        self._largest = 0

    def __len__(self) -> int:
        return len(self._left)

    def add(self, first: int) -> None:
        """Add a block. Numbers are popped from the end: smaller ones first, leftovers before all others."""
        self._left = [*range(first + BLOCK - 1, first - 1, -1), *self._left]

    def take(self) -> int:
        return self._left.pop()

    def forget_before(self, day: int) -> None:
        """Drop numbers of earlier days: an execution with one would keep that day's history from being dropped.

        Numbers of the next day stay: the database's clock may be ahead of its estimate here.
        """
        if self._left and day_of(self._left[-1]) < day:
            self._left = [number for number in self._left if day_of(number) >= day]

    def wanted_after(self, tries: int) -> int:
        """Return how many to reserve after so many were missing: always more than the time before."""
        self._largest = max(self._largest * 2, tries, BLOCK)
        return self._largest


WINDOW = 30.0
"""Seconds for which a sample of the database's clock counts at least; it counts for twice as long at most."""


def ticking() -> Callable[[], float]:
    """Return a monotonic clock, which neither an administrator nor NTP sets.

    Includes suspended time if the system reports it.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    return time.monotonic


class DatabaseClock:
    """An estimate of the database's clock from samples.

    A sample shows the clock when the database wrote it, and arrives later: the busier both are, the later. So of
    several samples the one that puts the database's clock furthest ahead is the most accurate. Samples expire,
    because the database's clock may be set and ours drifts. This machine's time of day is not used: setting it has
    no effect here.
    """

    def __init__(self, ticks: Callable[[], float]) -> None:
        self.seconds = 0.0
        """From the ticks to the database's clock. Meaningless before the first sample."""
        self._ticks = ticks
        self._until = -math.inf
        self._best = self._best_before = -math.inf

    def now(self) -> float:
        return self._ticks() + self.seconds

    def saw(self, database_now: float) -> None:
        ticks = self._ticks()
        if ticks >= self._until:
            recent = ticks < self._until + WINDOW
            self._best_before = self._best if recent else -math.inf
            self._best = -math.inf
            self._until = ticks + WINDOW
        self._best = max(self._best, database_now - ticks)
        self.seconds = max(self._best, self._best_before)


BEGIN = "BEGIN; SET LOCAL lock_timeout = '5s'; SET LOCAL idle_in_transaction_session_timeout = '10s'"
"""A process that stops in the middle of a transaction (SIGSTOP, a laptop's lid) must not hold its rows for ever."""

NO_END = 2**62
"""Statements after which the pool would close a connection: the next user would wait for all plans again."""

Row = Any
"""asyncpg.Record: a tuple with named columns. asyncpg ships no types."""

Connection = Any


class PostgresStore:
    """The part that ledger, archive, blobs and broker of one process share. Open it with :meth:`open`."""

    def __init__(self, pool: Any, url: str, clock: Clock | None, mode: ConnectionMode) -> None:
        self.url = url
        self.mode = mode
        self.announce_opening: Callable[[float], None] = lambda at: None
        """Called when a line that a rate has stopped continues."""
        self._pool = pool
        self.renewal = ConnectionRecycler(pool)
        self._clock = clock
        self._offset = DatabaseClock(ticking())
        self._numbers = Numbers()

    @classmethod
    async def open(
        cls, url: str, clock: Clock | None = None, *, connections: int = 4, may_migrate: bool = True
    ) -> PostgresStore:
        """Connect and bring the schema up to date. ``clock`` replaces the database's in tests."""
        with driver_errors():
            with connecting(url):
                mode = await find_mode(url)
            pool = await asyncpg.create_pool(
                url,
                min_size=0,  # asyncpg logs repeatedly about a minimum that it cannot restore
                max_size=connections,
                max_queries=NO_END,
                command_timeout=60,
                connect=connect,
                **mode.options(),
            )
            try:
                async with pool.acquire() as connection:
                    await migrate(connection, may_change=may_migrate)
            except BaseException:
                await pool.close()
                raise
        store = cls(pool, url, clock, mode)
        [(seen,)] = await store.fetch("look.now")
        store.saw(seen)
        return store

    def now(self) -> float:
        """Return the database's time, as estimated here."""
        return self._clock.now() if self._clock is not None else self._offset.now()

    def given_now(self) -> float | None:
        """Return the time to pass to statements; None lets the database use its own clock."""
        return self._clock.now() if self._clock is not None else None

    def saw(self, database_now: float) -> float:
        """Correct the local estimate; return the time that counts as now."""
        self._offset.saw(database_now)
        return self._clock.now() if self._clock is not None else database_now

    async def fetch(self, statement: str, *parameters: object) -> list[Row]:
        """Run one statement as a transaction of its own."""
        async with self._talking():
            rows: list[Row] = await self._pool.fetch(SQL[statement], *parameters)
        return rows

    async def fetch_together(self, *asked: tuple[str, tuple[object, ...]]) -> list[list[Row]]:
        """Read several results at one moment."""
        async with self.look() as tx:
            return [await tx.fetch(name, *parameters) for name, parameters in asked]

    @asynccontextmanager
    async def look(self) -> AsyncIterator[Transaction]:
        """Open a read-only transaction with one snapshot."""
        async with (
            self._talking(),
            self._pool.acquire() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            yield Transaction(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Open a transaction, committed when the block is left without an error."""
        async with self._talking(), self._pool.acquire() as connection:
            try:
                await connection.execute(BEGIN)
                yield Transaction(connection)
            except BaseException:
                await _roll_back(connection)
                raise
            await connection.execute("COMMIT")

    async def expect_writable(self) -> None:
        """Raise StoreReadOnly if the server answers, but is read-only. One statement, and nothing is written."""
        async with self._talking():
            [(writable, standby)] = await self._fetch_or_hang_up("reach.writable")
            if not writable:
                why = "it is a standby" if standby else "transaction_read_only is on"
                raise asyncpg.ReadOnlySQLTransactionError(why)

    async def _fetch_or_hang_up(self, statement: str) -> list[Row]:
        """Run a query that its caller may cancel, and close the connection on cancellation.

        The driver would ask the server to end the statement first, and wait for its reply, which a frozen server
        does not send.
        """
        async with self._pool.acquire() as connection:
            try:
                rows: list[Row] = await connection.fetch(SQL[statement])
            except asyncio.CancelledError:
                connection.terminate()
                raise
        return rows

    @asynccontextmanager
    async def _talking(self) -> AsyncIterator[None]:
        """Wrap a use of a connection of the pool."""
        with driver_errors():
            try:
                yield
            except asyncpg.PostgresError as error:
                await self.renewal.after(error)
                raise

    async def reserve_numbers(self, count: int, tx: Transaction | None = None) -> None:
        """Ensure that so many numbers for new executions are reserved, of today by the database's own clock."""
        self._numbers.forget_before(day_at(self._offset.now()))
        while len(self._numbers) < count:
            [(first,)] = await (self if tx is None else tx).fetch("look.next_numbers")
            self._numbers.add(first)

    def take_number(self) -> int:
        return self._numbers.take()

    def numbers_left(self) -> int:
        return len(self._numbers)

    def block_after(self, tries: int) -> int:
        """Return how many numbers to reserve after so many were missing."""
        return self._numbers.wanted_after(tries)

    async def close(self) -> None:
        with driver_errors():
            await self._pool.close()


async def _roll_back(connection: Connection) -> None:
    """Roll back, also after an interrupted BEGIN: the server may have begun.

    If this is interrupted, too, the connection is not left in a transaction.
    """
    if connection.is_closed():
        return
    try:
        await connection.execute("ROLLBACK")
    except BaseException:
        connection.terminate()
        raise


class Transaction:
    """The statements of this adapter on one connection."""

    __slots__ = ("connection",)

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def fetch(self, statement: str, *parameters: object) -> list[Row]:
        rows: list[Row] = await self.connection.fetch(SQL[statement], *parameters)
        return rows


BEGIN_SNAPSHOT = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL idle_in_transaction_session_timeout = '10s';"
    " SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off"
)
"""A plan is made once for all parameters, and the planner takes an unknown range for a short one: it would collect
and sort what should be walked until a page is full.
"""


@asynccontextmanager
async def snapshot(store: PostgresStore) -> AsyncIterator[Transaction]:
    """Open a read-only transaction; everything is read as of its first statement."""
    with driver_errors():
        async with store._pool.acquire() as connection:  # noqa: SLF001 - the store's other half
            await connection.execute(BEGIN_SNAPSHOT)
            try:
                yield Transaction(connection)
            finally:
                if not connection.is_closed():
                    await connection.execute("COMMIT")
