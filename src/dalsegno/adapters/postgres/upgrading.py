"""Looking at a database's schema, and bringing it up to date, without opening a store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from dalsegno.adapters.postgres.errors import connecting, driver_errors
from dalsegno.adapters.postgres.migration import installed_version, migrate, migrations


async def upgrade(url: str, *, check: bool, finish: bool) -> tuple[int, int, int]:
    """The schema's version before, now, and the newest that is known. ``check``: nothing is changed."""
    newest = len(migrations())
    async with _connected(url) as connection:
        before = await installed_version(connection)
        now = before if check and before <= newest else await migrate(connection, finish=finish)
    return before, now, newest


async def is_installed(url: str) -> bool:
    """Whether the database has our schema, in whatever version."""
    async with _connected(url) as connection:
        return await installed_version(connection) > 0


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Any]:
    with driver_errors():
        with connecting(url):
            connection = await asyncpg.connect(url, timeout=30, statement_cache_size=0)
        try:
            yield connection
        finally:
            await connection.close()
