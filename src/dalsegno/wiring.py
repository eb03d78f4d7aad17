"""Store adapters by URL: the one module that knows which adapter belongs to which scheme."""

from __future__ import annotations

import asyncio
import os
import re
import time
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from dalsegno.errors import BadConfiguration
from dalsegno.ports.clock import Clock
from dalsegno.ports.stack import Stack

LISTEN_VARIABLE = "DALSEGNO_LISTEN"
"""A direct URL of the same PostgreSQL database, for a store whose own URL goes through a pooler."""
STORE_VARIABLE = "DALSEGNO_STORE"
DEFAULT_STORE = "sqlite:///dalsegno.db"
POSTGRES = ("postgresql", "postgres")
LOGIN = re.compile(r"^((?:[\w+.-]+://)?+[^:/@?#]*):.*@")
"""A user and a password, up to the last ``@``: unescaped, a password may contain any separator of a URL."""
PASSWORD_OPTION = re.compile(r"([?&](?:ssl)?password=)[^&#]*")


class SystemClock:
    now = staticmethod(time.time)


def default_store() -> str:
    """Return the URL of the default store."""
    named = store_of_environment()
    return named if named is not None else DEFAULT_STORE


def store_of_environment() -> str | None:
    """Return the URL in the environment. A variable that is set but empty is refused when the store is opened: a
    deployment that lost its setting must not continue with a local file."""
    return os.environ.get(STORE_VARIABLE)


async def open_stack(url: str, clock: Clock | None = None) -> Stack:
    """Open the stack of a store URL: ``memory:``, ``sqlite:///relative.db``, ``sqlite:////absolute.db``,
    ``postgresql://user@host/database``. ``clock`` replaces the clock of the system or database in tests."""
    scheme = _scheme_of(url)
    if scheme == "memory":
        return _memory(url, clock or SystemClock())
    if scheme == "sqlite":
        return await _sqlite(url, clock or SystemClock())
    if is_postgres(url):
        return await _postgres(url, clock)
    raise BadConfiguration(
        f"the store URL {shown_url(url)!r} has the scheme {scheme or 'nothing'!r}; supported here: memory:, "
        "sqlite:///relative/path.db, sqlite:////absolute/path.db, postgresql://user:password@host/database"
    )


def _memory(url: str, clock: Clock) -> Stack:
    from dalsegno.adapters import memory  # noqa: PLC0415 - only what is used is loaded

    store = memory.MemoryStore()
    ledger = memory.MemoryLedger(clock, store)
    broker = memory.MemoryBroker(ledger)
    archive, blobs = memory.MemoryArchive(store, clock), memory.MemoryBlobs(store)
    records = memory.MemoryRecords(store, clock)
    limits = memory.MemoryLimits(store, clock)
    publications = memory.MemoryPublications(store, clock)
    return Stack(
        url,
        ledger,
        broker,
        archive,
        blobs,
        records,
        clock,
        broker.close,
        limits,
        publications=publications,
    )


async def _sqlite(url: str, clock: Clock) -> Stack:
    from dalsegno.adapters import sqlite  # noqa: PLC0415 - only what is used is loaded

    store = sqlite.SqliteStore.open(sqlite_path(url), clock)
    ledger = sqlite.SqliteLedger(store)
    broker = sqlite.SqliteBroker(ledger)
    watch = sqlite.SqliteWatch(store)

    async def close() -> None:
        await watch.close()
        await broker.close()
        await ledger.close()

    archive, blobs, records = (
        sqlite.SqliteArchive(store),
        sqlite.SqliteBlobs(store),
        sqlite.SqliteRecords(store),
    )
    limits = sqlite.SqliteLimits(store)
    transactions = sqlite.SqliteTransactions(store)
    return Stack(
        url,
        ledger,
        broker,
        archive,
        blobs,
        records,
        clock,
        close,
        limits,
        watch=watch,
        transactions=transactions,
        expect_writable=store.expect_writable,
        when_lost=store.file.listen,
        publications=sqlite.SqlitePublications(store),
    )


async def _postgres(url: str, clock: Clock | None) -> Stack:
    require_postgres_driver()
    from dalsegno.adapters import postgres  # noqa: PLC0415 - only what is used is loaded

    listen_at = _listening_at(url)
    store = await postgres.PostgresStore.open(url, clock)
    try:
        await postgres.make_in_time(store)
    except BaseException:
        await store.close()  # a retry opens another one
        raise
    ledger = postgres.PostgresLedger(store)
    listener = postgres.Listener(listen_at)
    broker = postgres.PostgresBroker(ledger, listener, ledger.waiting_workers)
    neighbours = postgres.PostgresNeighbours(ledger, listener, broker)
    transactions = postgres.PostgresTransactions(store, ledger.commits)
    listener.start()
    tending = asyncio.get_running_loop().create_task(postgres.keep_ahead(store), name="partitions")

    async def close() -> None:
        tending.cancel()
        await asyncio.gather(tending, return_exceptions=True)
        await transactions.close()
        await broker.close()
        await ledger.close()

    return Stack(
        shown_url(url),
        ledger,
        broker,
        postgres.PostgresArchive(store),
        postgres.PostgresBlobs(store),
        postgres.PostgresRecords(store),
        store,
        close,
        postgres.PostgresLimits(store),
        neighbours=neighbours,
        transactions=transactions,
        commits_at_once=postgres.COMMITS_AT_ONCE,
        timer_interval=postgres.TIMER_INTERVAL,
        expect_writable=store.expect_writable,
        publications=postgres.PostgresPublications(store),
    )


def _listening_at(url: str) -> str:
    """Return the URL on which notifications are received. Later failures of that connection are tolerated, but a
    malformed URL is refused."""
    given = os.environ.get(LISTEN_VARIABLE)
    if not given:
        return url
    host = urlsplit(given).netloc.rpartition("@")[2]
    ports = [server.rpartition("]")[2].partition(":")[2] for server in host.split(",")]
    if not is_postgres(given) or not all(port.isdecimal() for port in ports if port):
        raise BadConfiguration(
            f"{LISTEN_VARIABLE} is no URL of a PostgreSQL server; write postgresql://user@host:5432/database"
        )
    return given


def is_postgres(url: str) -> bool:
    return _scheme_of(url) in POSTGRES


def _scheme_of(url: str) -> str:
    """Return the scheme, also of a URL whose rest is malformed."""
    scheme, colon, _ = url.partition(":")
    return scheme.lower() if colon else ""


def require_postgres_driver() -> None:
    """Raise an error if the driver is missing, before the adapter is imported."""
    if find_spec("asyncpg") is None:
        raise BadConfiguration(
            "a store on PostgreSQL needs the driver asyncpg: pip install 'dalsegno[postgres]'"
            " (in a clone of the repository: pip install -e '.[postgres]')"
        )


def shown_url(url: str) -> str:
    """Return a store's URL for display, without its password. In doubt it omits more rather than show a part of the
    password."""
    if url.startswith(("sqlite:", "memory:")):
        return url
    return PASSWORD_OPTION.sub(r"\1***", LOGIN.sub(r"\1:***@", url, count=1))


def sqlite_path(url: str) -> Path:
    """Return the path: three slashes and a relative path, or four and an absolute one, as in SQLAlchemy."""
    parts = urlsplit(url)
    if parts.netloc or not parts.path.startswith("/") or parts.path == "/" or parts.query or parts.fragment:
        raise BadConfiguration(
            f"{url!r} is not a SQLite URL; write sqlite:///relative/path.db or sqlite:////absolute/path.db"
        )
    return Path(unquote(parts.path[1:]))
