"""What a database tells about itself, for whoever looks for a fault."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from msgspec import Struct

from dalsegno.adapters.postgres.errors import connecting, driver_errors
from dalsegno.adapters.postgres.listener import ECHO_SECONDS, Listener
from dalsegno.adapters.postgres.naming import name_of
from dalsegno.adapters.postgres.numbering import day_of
from dalsegno.adapters.postgres.partitions import name_of_day
from dalsegno.adapters.postgres.servers import connect
from dalsegno.adapters.postgres.statements import SQL
from dalsegno.adapters.postgres.ways import naming

OLDEST = 15
"""The first major version of PostgreSQL that knows all that is asked of it here."""

ABOUT = """
SELECT current_setting('server_version_num')::integer / 10000 AS major, current_setting('server_version') AS version,
       current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on'
           AND current_setting('synchronous_commit') <> 'off' AS durable,
       current_setting('autovacuum') = 'on' AND current_setting('track_counts') = 'on' AS vacuums,
       pg_is_in_recovery() AS standby,
       extract(epoch FROM clock_timestamp())::float8 AS now
"""


class Facts(Struct, frozen=True):
    major: int
    version: str
    durable: bool
    """Whether what it has confirmed is on disk."""
    vacuums: bool
    """Whether it clears away dead rows by itself."""
    standby: bool
    clock_ahead: float
    """Seconds by which its clock is before this machine's."""
    wakes: bool
    """Whether messages between processes arrive."""


async def examine_database(url: str, listen_at: str) -> Facts:
    row = await _look(url, ABOUT)
    ahead = row["now"] - time.time()
    wakes = await _wakes(listen_at)
    return Facts(row["major"], row["version"], row["durable"], row["vacuums"], row["standby"], ahead, wakes)


async def days_in_common(url: str) -> tuple[str, str] | None:
    """The first and the last day of which history lies in no partition of its own. The schema has to be there."""
    first, last = await _look(url, SQL["removal.outer_numbers_in_other"])
    return None if first is None else (name_of_day(day_of(first)), name_of_day(day_of(last)))


async def _look(url: str, statement: str) -> Any:
    with driver_errors():
        with connecting(url):
            connection = await connect(
                url,
                timeout=10,
                command_timeout=10,
                statement_cache_size=0,
                server_settings=naming(name_of(url)),
            )
        try:
            return await connection.fetchrow(statement)
        finally:
            await connection.close()


async def _wakes(url: str) -> bool:
    came = asyncio.Event()
    listener = Listener(url)
    listener.came = came.set
    listener.start()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ECHO_SECONDS + 1):
            await came.wait()
    await listener.close()
    return came.is_set()
