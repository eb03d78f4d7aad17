"""SqliteBlobs: large values in a table of their own."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Collection
from hashlib import sha256

from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.adapters.sqlite.store import SqliteStore
from dalsegno.errors import LimitExceeded, NotFound
from dalsegno.ports.blobs import refuse_over

MAX_BYTES = 512 * 1024 * 1024
"""SQLite itself ends at a billion bytes per row, and a value is in memory as a whole."""


class SqliteBlobs:
    def __init__(self, store: SqliteStore, max_bytes: int = MAX_BYTES) -> None:
        self.store = store
        self.max_bytes = max_bytes

    async def put(
        self, execution: str, data: bytes, *, turn: int | None = None, limit: int | None = None
    ) -> str:
        if len(data) > self.max_bytes:
            raise LimitExceeded(
                f"a value of {len(data)} bytes is larger than the limit of {self.max_bytes} bytes per blob"
            )
        blob = await asyncio.to_thread(lambda: sha256(data).hexdigest())

        def put(connection: sqlite3.Connection) -> int:
            known = connection.execute(SQL["history.has_blob"], (execution, blob)).fetchone()
            if known is not None:
                connection.execute(
                    SQL["history.touch_blob"], {"execution": execution, "id": blob, "turn": turn}
                )
                return -1
            stored = _stored(connection, execution)
            if limit is None or stored + len(data) <= limit:
                connection.execute(SQL["history.put_blob"], (execution, blob, data, turn))
                _charge(connection, execution, len(data))
                return -1
            return stored

        stored = await self.store.write(lambda rows: put(rows.connection))
        if stored >= 0:
            refuse_over(stored, len(data), limit)
        return blob

    async def get(self, execution: str, blob: str) -> bytes:
        row = await self.store.read(
            lambda connection: connection.execute(SQL["history.blob"], (execution, blob)).fetchone()
        )
        if row is None:
            raise NotFound(f"execution {execution} has no blob {blob}")
        return bytes(row[0])

    async def charge(self, execution: str, size: int, *, limit: int | None = None) -> None:
        def charge(connection: sqlite3.Connection) -> int:
            stored = _stored(connection, execution)
            if size <= 0 or limit is None or stored + size <= limit:
                _charge(connection, execution, size)
                return -1
            return stored

        stored = await self.store.write(lambda rows: charge(rows.connection))
        if stored >= 0:
            refuse_over(stored, size, limit)

    async def prune(self, execution: str, turn: int, keep: Collection[str]) -> None:
        named = {"execution": execution, "turn": turn, "keep": json.dumps(list(keep))}

        def prune(connection: sqlite3.Connection) -> None:
            (size,) = connection.execute(SQL["history.prunable_bytes"], named).fetchone()
            if size:
                connection.execute(SQL["history.prune_blobs"], named)
                _charge(connection, execution, -size)

        await self.store.write(lambda rows: prune(rows.connection))


def _stored(connection: sqlite3.Connection, execution: str) -> int:
    row = connection.execute(SQL["history.stored_bytes"], (execution,)).fetchone()
    return int(row[0]) if row is not None else 0


def _charge(connection: sqlite3.Connection, execution: str, size: int) -> None:
    connection.execute(SQL["history.charge"], {"execution": execution, "size": size})
