"""MemoryBroker: announcements in this process; what a worker is given comes from the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken
from dalsegno.ports.ledger import Ledger


class MemoryBroker:
    """An announcement only wakes waiting workers; claims find everything that is ready, so losing one costs nothing
    but time until the next."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._news = asyncio.Event()

    async def announce(self, tokens: Sequence[ReadyToken]) -> None:
        if tokens:
            self._tell()

    async def offer(self, tokens: Sequence[ReadyToken]) -> None:
        """There is no other process."""
        await self.announce(tokens)

    async def take(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        while True:
            news = self._news  # that of before the claim: whatever becomes ready during it is news
            leases = await self.claim(worker, queues, limit)
            if leases:
                return leases
            await news.wait()

    async def claim(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        """One look at the ledger."""
        return await self.ledger.claim(worker, queues, limit)

    async def close(self) -> None:
        self._tell()

    def _tell(self) -> None:
        """Everybody who waits, however many they are: the next news are another event."""
        self._news.set()
        self._news = asyncio.Event()
