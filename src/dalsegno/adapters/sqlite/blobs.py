"""SqliteBlobs: large values in a table of their own."""

from __future__ import annotations

import asyncio
from hashlib import sha256

from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.adapters.sqlite.store import SqliteStore
from dalsegno.errors import LimitExceeded, NotFound

MAX_BYTES = 512 * 1024 * 1024
"""SQLite itself ends at a billion bytes per row, and a value is in memory as a whole."""


class SqliteBlobs:
    def __init__(self, store: SqliteStore, max_bytes: int = MAX_BYTES) -> None:
        self.store = store
        self.max_bytes = max_bytes

    async def put(self, execution: str, data: bytes) -> str:
        if len(data) > self.max_bytes:
            raise LimitExceeded(
                f"a value of {len(data)} bytes is larger than the limit of {self.max_bytes} bytes per blob"
            )
        blob = await asyncio.to_thread(lambda: sha256(data).hexdigest())
        await self.store.write(
            lambda rows: rows.connection.execute(SQL["history.put_blob"], (execution, blob, data))
        )
        return blob

    async def get(self, execution: str, blob: str) -> bytes:
        row = await self.store.read(
            lambda connection: connection.execute(SQL["history.blob"], (execution, blob)).fetchone()
        )
        if row is None:
            raise NotFound(f"execution {execution} has no blob {blob}")
        return bytes(row[0])
