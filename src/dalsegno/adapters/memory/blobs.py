"""MemoryBlobs: large values in a dictionary."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import sha256

from dalsegno.adapters.memory.store import MemoryStore
from dalsegno.errors import NotFound
from dalsegno.ports.blobs import refuse_over


class MemoryBlobs:
    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    async def put(
        self, execution: str, data: bytes, *, turn: int | None = None, limit: int | None = None
    ) -> str:
        blob = sha256(data).hexdigest()
        key = (execution, blob)
        if key not in self.store.blobs:
            await self.charge(execution, len(data), limit=limit)
            self.store.blobs[key] = data
            if turn is not None:
                self.store.blob_turns[key] = turn
        elif turn is None:
            self.store.blob_turns.pop(key, None)
        elif key in self.store.blob_turns:
            self.store.blob_turns[key] = max(self.store.blob_turns[key], turn)
        return blob

    async def get(self, execution: str, blob: str) -> bytes:
        try:
            return self.store.blobs[execution, blob]
        except KeyError:
            raise NotFound(f"execution {execution} has no blob {blob}") from None

    async def stored(self, execution: str) -> int:
        return self.store.stored_bytes.get(execution, 0)

    async def charge(self, execution: str, size: int, *, limit: int | None = None) -> None:
        stored = self.store.stored_bytes.get(execution, 0)
        refuse_over(stored, size, limit)
        self.store.stored_bytes[execution] = max(stored + size, 0)

    async def prune(self, execution: str, turn: int, keep: Collection[str]) -> None:
        turns = self.store.blob_turns
        for key in [
            key
            for key, put_in in turns.items()
            if key[0] == execution and put_in < turn and key[1] not in keep
        ]:
            del turns[key]
            await self.charge(execution, -len(self.store.blobs.pop(key)))
