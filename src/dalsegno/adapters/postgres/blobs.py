"""PostgresBlobs: large values in a table of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import nullcontext
from functools import partial
from hashlib import sha256

from dalsegno.adapters.postgres.store import PostgresStore
from dalsegno.errors import LimitExceeded, NotFound
from dalsegno.ports.blobs import refuse_over

MAX_BYTES = 512 * 1024 * 1024
"""PostgreSQL itself ends at a billion bytes per value, and a value is in memory as a whole."""

LARGE, LARGE_AT_ONCE = 1024 * 1024, 2
"""So many blobs above this size are on their way at a time: each holds a connection and is copied in the event loop."""


class PostgresBlobs:
    def __init__(self, store: PostgresStore, max_bytes: int = MAX_BYTES) -> None:
        self.store = store
        self.max_bytes = max_bytes
        self._few = asyncio.Semaphore(LARGE_AT_ONCE)

    async def put(
        self, execution: str, data: bytes, *, turn: int | None = None, limit: int | None = None
    ) -> str:
        if len(data) > self.max_bytes:
            raise LimitExceeded(
                f"a value of {len(data)} bytes is larger than the limit of {self.max_bytes} bytes per blob"
            )
        blob = await asyncio.to_thread(lambda: sha256(data).hexdigest())
        if limit is not None and len(data) > limit:
            refuse_over(await self.stored(execution), len(data), limit)  # before the bytes travel
        put = partial(self.store.fetch, "blobs.put", execution, blob, data, turn, limit)
        async with self._few if len(data) > LARGE else nullcontext():
            while not (stored := await put()):
                if not await self.store.fetch("blobs.has", execution, blob):  # else it was put meanwhile
                    refuse_over(await self.stored(execution), len(data), limit)
        if stored[0]["is_new"] != stored[0]["is_charged"]:
            await self.charge(execution, len(data) if stored[0]["is_new"] else -len(data))
        return blob

    async def get(self, execution: str, blob: str) -> bytes:
        rows = await self.store.fetch("blobs.one", execution, blob)
        if not rows:
            raise NotFound(f"execution {execution} has no blob {blob}")
        return bytes(rows[0][0])

    async def charge(self, execution: str, size: int, *, limit: int | None = None) -> None:
        async with self.store.transaction() as rows:
            [count] = await rows.fetch("blobs.charge", execution, size)
            refuse_over(count["bytes"] - size, size, limit)

    async def prune(self, execution: str, turn: int, keep: Collection[str]) -> None:
        await self.store.fetch("blobs.prune", execution, turn, list(keep))

    async def stored(self, execution: str) -> int:
        rows = await self.store.fetch("blobs.stored", execution)
        return rows[0][0] if rows else 0
