"""PostgresStore: one database, the connections to it, and its clock."""

from __future__ import annotations

import time
from typing import Any

import asyncpg

from dalsegno.adapters.postgres.errors import driver_errors
from dalsegno.adapters.postgres.migration import migrate
from dalsegno.adapters.postgres.statements import SQL
from dalsegno.ports.clock import Clock

SESSION = {
    "search_path": "dalsegno",
    "application_name": "dalsegno",
    "jit": "off",  # compiling costs more than any statement here takes
    # Every statement here goes by an index. Tables that fill and drain faster than they are analysed must not tempt
    # the planner to anything else, and a plan once made holds.
    "enable_seqscan": "off",
    "plan_cache_mode": "force_generic_plan",
}

Row = Any
"""asyncpg.Record: a tuple that also knows its columns. asyncpg ships no types."""


class PostgresStore:
    """What ledger, archive, blobs and broker of one process share. Open it with :meth:`open`."""

    def __init__(self, pool: Any, clock: Clock | None) -> None:
        self._pool = pool
        self._clock = clock
        self._offset = 0.0

    @classmethod
    async def open(cls, url: str, clock: Clock | None = None, *, connections: int = 4) -> PostgresStore:
        """Connects and brings the schema up to date. ``clock`` replaces the database's in tests."""
        with driver_errors():
            pool = await asyncpg.create_pool(
                url, min_size=1, max_size=connections, server_settings=SESSION, command_timeout=60
            )
            try:
                async with pool.acquire() as connection:
                    await migrate(connection)
            except BaseException:
                await pool.close()
                raise
        store = cls(pool, clock)
        [(seen,)] = await store.fetch("look.now")
        store.saw(seen)
        return store

    def now(self) -> float:
        """The database's clock as last seen."""
        return self._clock.now() if self._clock is not None else time.time() + self._offset

    def given_now(self) -> float | None:
        """The time to pass to statements; None lets the database look at its own clock."""
        return self._clock.now() if self._clock is not None else None

    def saw(self, database_now: float) -> None:
        self._offset = database_now - time.time()

    async def fetch(self, statement: str, *parameters: object) -> list[Row]:
        """Runs one statement as a transaction of its own."""
        with driver_errors():
            rows: list[Row] = await self._pool.fetch(SQL[statement], *parameters)
        return rows

    async def fetch_together(self, *asked: tuple[str, tuple[object, ...]]) -> list[list[Row]]:
        """Several looks at one moment."""
        with driver_errors():
            async with (
                self._pool.acquire() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                return [await connection.fetch(SQL[name], *parameters) for name, parameters in asked]

    async def close(self) -> None:
        with driver_errors():
            await self._pool.close()
