"""MemoryBlobs: large values in a dictionary."""

from __future__ import annotations

from hashlib import sha256

from dalsegno.adapters.memory.store import MemoryStore
from dalsegno.errors import NotFound


class MemoryBlobs:
    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    async def put(self, execution: str, data: bytes) -> str:
        blob = sha256(data).hexdigest()
        self.store.blobs[execution, blob] = data
        return blob

    async def get(self, execution: str, blob: str) -> bytes:
        try:
            return self.store.blobs[execution, blob]
        except KeyError:
            raise NotFound(f"execution {execution} has no blob {blob}") from None
