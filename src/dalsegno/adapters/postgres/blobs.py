"""PostgresBlobs: large values in a table of their own."""

from __future__ import annotations

import asyncio
from hashlib import sha256

from dalsegno.adapters.postgres.store import PostgresStore
from dalsegno.errors import LimitExceeded, NotFound

MAX_BYTES = 512 * 1024 * 1024
"""PostgreSQL itself ends at a billion bytes per value, and a value is in memory as a whole."""


class PostgresBlobs:
    def __init__(self, store: PostgresStore, max_bytes: int = MAX_BYTES) -> None:
        self.store = store
        self.max_bytes = max_bytes

    async def put(self, execution: str, data: bytes) -> str:
        if len(data) > self.max_bytes:
            raise LimitExceeded(
                f"a value of {len(data)} bytes is larger than the limit of {self.max_bytes} bytes per blob"
            )
        blob = await asyncio.to_thread(lambda: sha256(data).hexdigest())
        await self.store.fetch("blobs.put", execution, blob, data)
        return blob

    async def get(self, execution: str, blob: str) -> bytes:
        rows = await self.store.fetch("blobs.one", execution, blob)
        if not rows:
            raise NotFound(f"execution {execution} has no blob {blob}")
        return bytes(rows[0][0])
