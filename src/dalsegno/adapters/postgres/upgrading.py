"""Looking at a database's schema, and bringing it up to date, without opening a store."""

from __future__ import annotations

import asyncpg

from dalsegno.adapters.postgres.errors import driver_errors
from dalsegno.adapters.postgres.migration import installed_version, migrate, migrations


async def upgrade(url: str, *, check: bool, finish: bool) -> tuple[int, int, int]:
    """The schema's version before, now, and the newest that is known. ``check``: nothing is changed."""
    newest = len(migrations())
    with driver_errors():
        connection = await asyncpg.connect(url, timeout=30, statement_cache_size=0)
        try:
            before = await installed_version(connection)
            now = before if check and before <= newest else await migrate(connection, finish=finish)
        finally:
            await connection.close()
    return before, now, newest
