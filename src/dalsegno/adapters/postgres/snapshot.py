"""Several looks at one moment, each by walking an index in its order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dalsegno.adapters.postgres.errors import driver_errors
from dalsegno.adapters.postgres.store import PostgresStore, Transaction

BEGIN = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL idle_in_transaction_session_timeout = '10s';"
    " SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off"
)
"""A plan is made once for all parameters, and the planner takes a range that it does not know for a short one: it would
gather and sort what is to be walked until a page is full."""


@asynccontextmanager
async def snapshot(store: PostgresStore) -> AsyncIterator[Transaction]:
    """Everything that is read inside is as of its first statement; nothing can be changed."""
    with driver_errors():
        async with store._pool.acquire() as connection:  # noqa: SLF001 - the store's other half
            await connection.execute(BEGIN)
            try:
                yield Transaction(connection)
            finally:
                if not connection.is_closed():
                    await connection.execute("COMMIT")
