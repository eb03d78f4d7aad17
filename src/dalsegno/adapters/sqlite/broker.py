"""SqliteBroker: announcements inside this process, and a check of the file when another one has committed."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence

from dalsegno.adapters.sqlite.ledger import SqliteLedger
from dalsegno.adapters.sqlite.watch import Repeated
from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken, Transition

LOOK_EVERY = 5.0
"""Seconds after which a worker without announcements claims by itself."""


class SqliteBroker:
    """An announcement only wakes waiting workers; claims find everything that is ready.

    After a commit of another process one read decides if a claim is worth the write lock.
    """

    def __init__(self, ledger: SqliteLedger) -> None:
        self.ledger = ledger
        self._changed = asyncio.Event()
        self._asked: Counter[str] = Counter()
        """Queues that a worker waits for or is claiming from."""
        self._look = Repeated(self._look_for_others)
        self._listens = False

    def committed(self, transition: Transition) -> None:
        """Do nothing: an announcement only names tokens."""

    async def announce(self, tokens: Sequence[ReadyToken]) -> None:
        if tokens:
            self._wake_all()

    async def offer(self, tokens: Sequence[ReadyToken]) -> None:
        """Do nothing: the others notice the commit anyway."""

    async def take(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        self._listen()
        self._asked.update(queues)  # before the claim: another process may commit during it
        try:
            while True:
                # Taken before the claim: tokens that become ready during it set this event.
                changed = self._changed
                leases = await self.ledger.claim(worker, queues, limit)
                if leases:
                    return leases
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY):
                        await changed.wait()
        finally:
            self._asked -= Counter(queues)

    def settled(self, lease: Lease) -> None:
        """Do nothing: there are no messages to acknowledge."""

    async def close(self) -> None:
        await self._look.close()
        self._wake_all()

    def _listen(self) -> None:
        if not self._listens:
            self._listens = True
            self.ledger.store.elsewhere.listen(self._committed_elsewhere)

    def _committed_elsewhere(self) -> None:
        if self._asked:
            self._look.soon()

    async def _look_for_others(self) -> None:
        if await self.ledger.any_ready(self._asked):
            self._wake_all()

    def _wake_all(self) -> None:
        """Wake every worker that waits; the next news set another event."""
        self._changed.set()
        self._changed = asyncio.Event()
