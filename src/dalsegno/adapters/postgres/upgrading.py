"""Looking at a database's schema, and bringing it up to date, without opening a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from dalsegno.adapters.postgres.errors import connecting, driver_errors
from dalsegno.adapters.postgres.installed import look
from dalsegno.adapters.postgres.migration import migrate, migrations
from dalsegno.adapters.postgres.naming import CONNECTED, WITHOUT_VERSION, name_of, process_of
from dalsegno.adapters.postgres.servers import connect
from dalsegno.adapters.postgres.ways import naming
from dalsegno.ports.ledger import WorkerView
from dalsegno.ports.upgrading import ConnectedProcess

WORKERS = "SELECT id, expires_at, 0, info FROM dalsegno.worker ORDER BY id"
"""Of a schema of any version, and so without how much they hold."""
NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"

Agree = Callable[[Sequence[WorkerView], Sequence[ConnectedProcess], float], None]
"""Told who works on the store, who is connected to it, and what time it is there. Raises where it does not agree."""


async def upgrade(url: str, *, check: bool, finish: bool, agree: Agree | None = None) -> tuple[int, int, int]:
    """The schema's version before, now, and the newest that is known. ``check``: nothing is changed. ``agree`` is asked
    before something is taken away that older processes need."""
    known = migrations()
    async with _connected(url) as connection:
        found = await look(connection)
        found.refuse_older(len(known))
        if check:
            return found.version, found.version, len(known)
        asked = None if agree is None else partial(_ask, agree)
        return found.version, await migrate(connection, finish=finish, agree=asked), len(known)


async def is_installed(url: str) -> bool:
    """Whether the database has our schema, in whatever version."""
    async with _connected(url) as connection:
        return (await look(connection)).version > 0


async def is_up_to_date(url: str) -> bool:
    """False where the schema is missing. One that this program would have to change first is refused."""
    async with _connected(url) as connection:
        if (await look(connection)).version == 0:
            return False
        await migrate(connection, may_change=False)
        return True


async def _ask(agree: Agree, connection: Any) -> None:
    workers = [WorkerView(*row) for row in await connection.fetch(WORKERS)]
    connected = [process_of(*row) for row in await connection.fetch(CONNECTED, WITHOUT_VERSION)]
    agree(workers, list(dict.fromkeys(connected)), await connection.fetchval(NOW))


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Any]:
    with driver_errors():
        with connecting(url):
            connection = await connect(
                url, timeout=30, statement_cache_size=0, server_settings=naming(name_of(url))
            )
        try:
            yield connection
        finally:
            await connection.close()
