"""PostgresStore: one database, the connections to it, and its clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from dalsegno.adapters.postgres.errors import connecting, driver_errors
from dalsegno.adapters.postgres.migration import migrate
from dalsegno.adapters.postgres.numbering import Numbers, day_at
from dalsegno.adapters.postgres.offset import Offset, ticking
from dalsegno.adapters.postgres.renewal import Renewal
from dalsegno.adapters.postgres.servers import connect
from dalsegno.adapters.postgres.statements import SQL
from dalsegno.adapters.postgres.warming import warm
from dalsegno.adapters.postgres.ways import Way, find_way
from dalsegno.ports.clock import Clock

BEGIN = "BEGIN; SET LOCAL lock_timeout = '5s'; SET LOCAL idle_in_transaction_session_timeout = '10s'"
"""A process that stops in the middle of a transaction (SIGSTOP, a laptop's lid) must not hold its rows for ever."""

NO_END = 2**62
"""Statements of a connection after which the pool would close it: whoever comes next would wait for all plans again."""

Row = Any
"""asyncpg.Record: a tuple that also knows its columns. asyncpg ships no types."""

Connection = Any


class PostgresStore:
    """What ledger, archive, blobs and broker of one process share. Open it with :meth:`open`."""

    def __init__(self, pool: Any, url: str, clock: Clock | None, way: Way) -> None:
        self.url = url
        self.way = way
        self.tell_opening: Callable[[float], None] = lambda at: None
        """Whom a claim tells when a line that a rate has stopped goes on."""
        self._pool = pool
        self.renewal = Renewal(pool)
        self._clock = clock
        self._offset = Offset(ticking())
        self._numbers = Numbers()

    @classmethod
    async def open(
        cls, url: str, clock: Clock | None = None, *, connections: int = 4, may_migrate: bool = True
    ) -> PostgresStore:
        """Connects and brings the schema up to date. ``clock`` replaces the database's in tests."""
        with driver_errors():
            with connecting(url):
                way = await find_way(url)
            is_migrated = False

            async def greet(connection: Connection) -> None:
                """The first one migrates; whatever needs no other is over soon, and plans only what it uses."""
                if is_migrated and not way.pooled:
                    await warm(connection)

            pool = await asyncpg.create_pool(
                url,
                min_size=0,  # a floor that asyncpg cannot restore it complains about again and again
                max_size=connections,
                max_queries=NO_END,
                command_timeout=60,
                init=greet,
                connect=connect,
                **way.options(),
            )
            try:
                async with pool.acquire() as connection:
                    await migrate(connection, may_change=may_migrate)
            except BaseException:
                await pool.close()
                raise
            is_migrated = True
        store = cls(pool, url, clock, way)
        [(seen,)] = await store.fetch("look.now")
        store.saw(seen)
        return store

    def now(self) -> float:
        """The database's clock, as far as it is known here."""
        return self._clock.now() if self._clock is not None else self._offset.now()

    def given_now(self) -> float | None:
        """The time to pass to statements; None lets the database look at its own clock."""
        return self._clock.now() if self._clock is not None else None

    def saw(self, database_now: float) -> float:
        """Corrects the local clock. Returns what counts as now."""
        self._offset.saw(database_now)
        return self._clock.now() if self._clock is not None else database_now

    async def fetch(self, statement: str, *parameters: object) -> list[Row]:
        """Runs one statement as a transaction of its own."""
        async with self._talking():
            rows: list[Row] = await self._pool.fetch(SQL[statement], *parameters)
        return rows

    async def fetch_together(self, *asked: tuple[str, tuple[object, ...]]) -> list[list[Row]]:
        """Several looks at one moment."""
        async with self.look() as tx:
            return [await tx.fetch(name, *parameters) for name, parameters in asked]

    @asynccontextmanager
    async def look(self) -> AsyncIterator[Transaction]:
        """Looks at one moment, and changes nothing."""
        async with (
            self._talking(),
            self._pool.acquire() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            yield Transaction(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Statements that are applied together, once the block is left without an error."""
        async with self._talking(), self._pool.acquire() as connection:
            try:
                await connection.execute(BEGIN)
                yield Transaction(connection)
            except BaseException:
                await _roll_back(connection)
                raise
            await connection.execute("COMMIT")

    async def expect_writable(self) -> None:
        """Raises StoreReadOnly where the server answers, but takes no writes. One statement, and nothing is written."""
        async with self._talking():
            [(writable, standby)] = await self._fetch_or_hang_up("reach.writable")
            if not writable:
                why = "it is a standby" if standby else "transaction_read_only is on"
                raise asyncpg.ReadOnlySQLTransactionError(why)

    async def _fetch_or_hang_up(self, statement: str) -> list[Row]:
        """A question that its caller may give up: then the connection goes with it. The driver would ask the server to
        end the statement first, and wait for its answer, which does not come from one that stands still."""
        async with self._pool.acquire() as connection:
            try:
                rows: list[Row] = await connection.fetch(SQL[statement])
            except asyncio.CancelledError:
                connection.terminate()
                raise
        return rows

    @asynccontextmanager
    async def _talking(self) -> AsyncIterator[None]:
        """Around whatever uses a connection of the pool."""
        with driver_errors():
            try:
                yield
            except asyncpg.PostgresError as error:
                await self.renewal.after(error)
                raise

    async def reserve_numbers(self, count: int, tx: Transaction | None = None) -> None:
        """Makes sure that there are as many numbers for new executions, of today by the database's own clock."""
        self._numbers.forget_before(day_at(self._offset.now()))
        while len(self._numbers) < count:
            [(first,)] = await (self if tx is None else tx).fetch("look.next_numbers")
            self._numbers.add(first)

    def take_number(self) -> int:
        return self._numbers.take()

    def numbers_left(self) -> int:
        return len(self._numbers)

    def block_after(self, tries: int) -> int:
        """How many numbers to have at hand after so many were missing."""
        return self._numbers.wanted_after(tries)

    async def close(self) -> None:
        with driver_errors():
            await self._pool.close()


async def _roll_back(connection: Connection) -> None:
    """Also one whose BEGIN was interrupted: the server may have begun. Whoever is interrupted even in this leaves no
    connection that stands in a transaction."""
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
