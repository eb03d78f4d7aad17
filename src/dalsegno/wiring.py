"""From a URL to a stack: the one module that knows which adapter stands behind which scheme."""

from __future__ import annotations

import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

from dalsegno.engine.stack import Stack
from dalsegno.errors import BadConfiguration
from dalsegno.ports.clock import Clock


class SystemClock:
    now = staticmethod(time.time)


async def open_stack(url: str, clock: Clock | None = None) -> Stack:
    """Opens the stack behind a store URL: ``memory:``, ``sqlite:///relative.db``, ``sqlite:////absolute.db``."""
    clock = clock or SystemClock()
    scheme = urlsplit(url).scheme
    if scheme == "memory":
        return _memory(url, clock)
    if scheme == "sqlite":
        return await _sqlite(url, clock)
    raise BadConfiguration(
        f"the store URL {url!r} has the scheme {scheme or 'nothing'!r}; supported here: memory:, "
        "sqlite:///relative/path.db, sqlite:////absolute/path.db"
    )


def _memory(url: str, clock: Clock) -> Stack:
    from dalsegno.adapters import memory  # noqa: PLC0415 - only what is used is loaded

    store = memory.MemoryStore()
    ledger = memory.MemoryLedger(clock, store)
    broker = memory.MemoryBroker(ledger)
    archive, blobs = memory.MemoryArchive(store, clock), memory.MemoryBlobs(store)
    records = memory.MemoryRecords(store, clock)
    limits = memory.MemoryLimits(store, clock)
    return Stack(url, ledger, broker, archive, blobs, records, clock, broker.close, limits)


async def _sqlite(url: str, clock: Clock) -> Stack:
    from dalsegno.adapters import sqlite  # noqa: PLC0415 - only what is used is loaded

    store = sqlite.SqliteStore.open(sqlite_path(url), clock)
    ledger = sqlite.SqliteLedger(store)
    broker = sqlite.SqliteBroker(ledger)

    async def close() -> None:
        await broker.close()
        await ledger.close()

    archive, blobs, records = (
        sqlite.SqliteArchive(store),
        sqlite.SqliteBlobs(store),
        sqlite.SqliteRecords(store),
    )
    limits = sqlite.SqliteLimits(store)
    return Stack(url, ledger, broker, archive, blobs, records, clock, close, limits)


def sqlite_path(url: str) -> Path:
    """Three slashes and a relative path, or four and an absolute one, as SQLAlchemy writes them."""
    parts = urlsplit(url)
    if parts.netloc or not parts.path.startswith("/") or parts.path == "/" or parts.query or parts.fragment:
        raise BadConfiguration(
            f"{url!r} is not a SQLite URL; write sqlite:///relative/path.db or sqlite:////absolute/path.db"
        )
    return Path(unquote(parts.path[1:]))
