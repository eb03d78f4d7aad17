"""Facts that a database reports about itself, for fault finding."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from dalsegno.adapters.postgres.archive.partitions import AHEAD, TableOwnership, missing_among, name_of_day
from dalsegno.adapters.postgres.connections import connect, name_of, naming
from dalsegno.adapters.postgres.errors import connecting, driver_errors, rights
from dalsegno.adapters.postgres.messaging.listener import ECHO_SECONDS, Listener
from dalsegno.adapters.postgres.statements import SQL
from dalsegno.adapters.postgres.store import day_at, day_of

OLDEST = 15
"""The first major version of PostgreSQL that supports every statement here."""

ABOUT = """
SELECT current_setting('server_version_num')::integer / 10000 AS major, current_setting('server_version') AS version,
       current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on'
           AND current_setting('synchronous_commit') <> 'off' AS durable,
       current_setting('autovacuum') = 'on' AND current_setting('track_counts') = 'on' AS vacuums,
       pg_is_in_recovery() AS standby,
       extract(epoch FROM clock_timestamp())::float8 AS now
"""


class Link(Struct, frozen=True):
    """Properties of a connection to the server."""

    address: str
    """Address of the server; empty for a Unix socket."""
    encrypted: bool
    verified: bool
    """The server's certificate was checked."""


class Facts(Struct, frozen=True):
    major: int
    version: str
    durable: bool
    """A confirmed commit is on disk."""
    vacuums: bool
    """Autovacuum is on."""
    standby: bool
    clock_ahead: float
    """Seconds by which its clock is ahead of this machine's."""
    wakes: bool
    """Messages between processes arrive."""
    links: tuple[Link, ...] = ()
    """Links to the store's URL, and to the URL for wake-ups if that differs."""


async def examine_database(url: str, listen_at: str) -> Facts:
    async with _connected(url) as connection:
        row = await connection.fetchrow(ABOUT)
        links = [_link(connection)]
    ahead = row["now"] - time.time()
    wakes = await _wakes(listen_at)
    if wakes and listen_at != url:
        async with _connected(listen_at) as connection:
            links.append(_link(connection))
    about = (row["major"], row["version"], row["durable"], row["vacuums"], row["standby"])
    return Facts(*about, ahead, wakes, tuple(links))


def _link(connection: Any) -> Link:
    """Return the connection's properties. asyncpg has no public way to get them.

    Its default, ``sslmode=prefer``, falls back to plain text if TLS is refused.
    """
    transport = connection._transport  # noqa: SLF001 - see above
    secured = transport.get_extra_info("ssl_object")
    peer = transport.get_extra_info("peername")
    address = str(peer[0]) if isinstance(peer, tuple) else ""
    verified = secured is not None and secured.context.verify_mode == ssl.CERT_REQUIRED
    return Link(address, secured is not None, verified)


class Refused(Struct, frozen=True):
    """What a role may not use of the schema, and the grant that would permit it."""

    role: str
    names: tuple[str, ...]
    cure: str


async def examine_rights_of(url: str) -> Refused | None:
    """Return the missing rights; None if nothing is missing, or there is no schema."""
    async with _connected(url) as connection:
        missing = await connection.fetch(SQL["look.rights"])
    if not missing:
        return None
    role = missing[0]["role"]
    return Refused(role, tuple(f"{row['kind']} {row['name']}" for row in missing), rights(role))


class HistoryFacts(Struct, frozen=True):
    in_common: tuple[str, str] | None
    """The first and the last day whose history has no partition of its own."""
    missing: tuple[str, str] | None
    """The first and the last day without a partition, of those that should have one by now."""
    ownership: TableOwnership


async def examine_history_of(url: str) -> HistoryFacts:
    """Return the history's facts for a database with our schema and an open store."""
    async with _connected(url) as connection:
        ownership = TableOwnership(*await connection.fetchrow(SQL["partitions.ownership"]))
        numbers = await connection.fetchrow(SQL["partitions.outer_numbers_in_other"])
        names = [name for (name,) in await connection.fetch(SQL["partitions.names"], "dalsegno.event")]
        today = day_at(await connection.fetchval(SQL["look.now"]))
    in_common = [day_of(number) for number in numbers if number is not None]
    # A role that may create them has created today's and tomorrow's when the store was opened, and is creating the
    # others.
    missing = missing_among(names, today, 1 if ownership.suffices else AHEAD)
    return HistoryFacts(_outer(in_common), _outer(missing), ownership)


def _outer(days: list[int]) -> tuple[str, str] | None:
    return (name_of_day(days[0]), name_of_day(days[-1])) if days else None


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Any]:
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
            yield connection
        finally:
            await connection.close()


async def _wakes(url: str) -> bool:
    came = asyncio.Event()
    listener = Listener(url)
    listener.on_connect = came.set
    listener.start()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ECHO_SECONDS + 1):
            await came.wait()
    await listener.close()
    return came.is_set()
