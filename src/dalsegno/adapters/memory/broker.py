"""MemoryBroker: announcements in this process; what a worker is given comes from the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken
from dalsegno.ports.ledger import Ledger


class MemoryBroker:
    """An announcement only wakes whoever waits; claims find everything that is ready, so losing one costs nothing
    but time until the next."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._news = asyncio.Event()

    async def announce(self, tokens: Sequence[ReadyToken]) -> None:
        if tokens:
            self._news.set()

    async def take(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        while True:
            self._news.clear()
            leases = await self.ledger.claim(worker, queues, limit)
            if leases:
                return leases
            await self._news.wait()

    async def close(self) -> None:
        self._news.set()
