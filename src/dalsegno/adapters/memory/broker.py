"""MemoryBroker: announcements in this process; leases come from the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken, Transition
from dalsegno.ports.ledger import Ledger


class MemoryBroker:
    """An announcement only wakes waiting workers.

    Claims find everything that is ready, so losing one only delays work until the next.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._changed = asyncio.Event()

    def committed(self, transition: Transition) -> None:
        """Do nothing: an announcement only names tokens."""

    async def announce(self, tokens: Sequence[ReadyToken]) -> None:
        if tokens:
            self._wake_all()

    async def offer(self, tokens: Sequence[ReadyToken]) -> None:
        """Do nothing: there is no other process."""
        await self.announce(tokens)

    async def take(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        while True:
            # Taken before the claim: tokens that become ready during it set this event.
            changed = self._changed
            leases = await self.claim(worker, queues, limit)
            if leases:
                return leases
            await changed.wait()

    async def claim(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        """Claim from the ledger once."""
        return await self.ledger.claim(worker, queues, limit)

    def settled(self, lease: Lease) -> None:
        """Do nothing: there are no messages to acknowledge."""

    async def close(self) -> None:
        self._wake_all()

    def _wake_all(self) -> None:
        """Wake every worker that waits; the next news set another event."""
        self._changed.set()
        self._changed = asyncio.Event()
