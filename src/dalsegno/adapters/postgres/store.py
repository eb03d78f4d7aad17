"""PostgresStore: one database, the connections to it, and its clock."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from dalsegno.adapters.postgres.errors import driver_errors
from dalsegno.adapters.postgres.migration import migrate
from dalsegno.adapters.postgres.statements import SQL
from dalsegno.adapters.postgres.ways import Way, find_way
from dalsegno.ports.clock import Clock

BEGIN = "BEGIN; SET LOCAL lock_timeout = '5s'; SET LOCAL idle_in_transaction_session_timeout = '10s'"
"""A process that stops in the middle of a transaction (SIGSTOP, a laptop's lid) must not hold its rows for ever."""

BLOCK = 1000
"""Numbers of executions that are taken at once: the increment of their sequence."""

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
        self._clock = clock
        self._offset = 0.0
        self._numbers: list[int] = []
        self._largest = 0

    @classmethod
    async def open(
        cls, url: str, clock: Clock | None = None, *, connections: int = 4, may_migrate: bool = True
    ) -> PostgresStore:
        """Connects and brings the schema up to date. ``clock`` replaces the database's in tests."""
        with driver_errors():
            way = await find_way(url)
            pool = await asyncpg.create_pool(
                url,
                min_size=0,  # a floor that asyncpg cannot restore it complains about again and again
                max_size=connections,
                command_timeout=60,
                **way.options(),
            )
            try:
                async with pool.acquire() as connection:
                    await migrate(connection, may_change=may_migrate)
            except BaseException:
                await pool.close()
                raise
        store = cls(pool, url, clock, way)
        [(seen,)] = await store.fetch("look.now")
        store.saw(seen)
        return store

    def now(self) -> float:
        """The database's clock as last seen."""
        return self._clock.now() if self._clock is not None else time.time() + self._offset

    def given_now(self) -> float | None:
        """The time to pass to statements; None lets the database look at its own clock."""
        return self._clock.now() if self._clock is not None else None

    def saw(self, database_now: float) -> float:
        """Corrects the local clock. Returns what counts as now."""
        self._offset = database_now - time.time()
        return self._clock.now() if self._clock is not None else database_now

    async def fetch(self, statement: str, *parameters: object) -> list[Row]:
        """Runs one statement as a transaction of its own."""
        with driver_errors():
            rows: list[Row] = await self._pool.fetch(SQL[statement], *parameters)
        return rows

    async def fetch_together(self, *asked: tuple[str, tuple[object, ...]]) -> list[list[Row]]:
        """Several looks at one moment."""
        async with self.look() as tx:
            return [await tx.fetch(name, *parameters) for name, parameters in asked]

    @asynccontextmanager
    async def look(self) -> AsyncIterator[Transaction]:
        """Looks at one moment, and changes nothing."""
        with driver_errors():
            async with (
                self._pool.acquire() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                yield Transaction(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Statements that are applied together, once the block is left without an error."""
        with driver_errors():
            async with self._pool.acquire() as connection:
                await connection.execute(BEGIN)
                try:
                    yield Transaction(connection)
                except BaseException:
                    if not connection.is_closed():
                        await connection.execute("ROLLBACK")
                    raise
                await connection.execute("COMMIT")

    async def reserve_numbers(self, count: int, tx: Transaction | None = None) -> None:
        """Makes sure that there are as many numbers for new executions."""
        while len(self._numbers) < count:
            [(first,)] = await (self if tx is None else tx).fetch("look.next_numbers")
            # Popped from the end: the smaller ones first, and those that were left over before all others.
            self._numbers = [*range(first + BLOCK - 1, first - 1, -1), *self._numbers]

    def take_number(self) -> int:
        return self._numbers.pop()

    def numbers_left(self) -> int:
        return len(self._numbers)

    def block_after(self, tries: int) -> int:
        """How many numbers to have at hand after so many were missing: always more than the time before."""
        self._largest = max(self._largest * 2, tries, BLOCK)
        return self._largest

    async def close(self) -> None:
        with driver_errors():
            await self._pool.close()


class Transaction:
    """The statements of this adapter on one connection."""

    __slots__ = ("connection",)

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def fetch(self, statement: str, *parameters: object) -> list[Row]:
        rows: list[Row] = await self.connection.fetch(SQL[statement], *parameters)
        return rows
