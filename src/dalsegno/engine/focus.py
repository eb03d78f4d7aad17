"""A broker that brings only the tokens of one execution and of what it starts: for ``dalsegno run``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger

GLANCE = 1.0
"""Another process may make a token ready; that is noticed after this time at the latest."""


class FocusedBroker:
    def __init__(self, broker: Broker, ledger: Ledger, execution: str) -> None:
        self.broker = broker
        self.ledger = ledger
        self.executions = [execution]
        self._news = asyncio.Event()

    def follow(self, parent: str | None, execution: str) -> None:
        """A child of what is followed is followed too."""
        if parent in self.executions and execution not in self.executions:
            self.executions.append(execution)

    async def announce(self, tokens: Sequence[ReadyToken]) -> None:
        """Everyone else hears of it too: other executions' timers may come due in this process."""
        self._news.set()
        await self.broker.announce(tokens)

    async def offer(self, tokens: Sequence[ReadyToken]) -> None:
        await self.broker.offer(tokens)

    async def take(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        """Whatever queue they are in: what a script asks for is known only when it asks, and nobody else may run it."""
        while True:
            self._news.clear()
            ready = [token for execution in self.executions for token in await self.ledger.ready(execution)]
            ready.sort(key=lambda token: -token.priority)
            leases: list[Lease] = []
            while (
                ready and len(leases) < limit
            ):  # those whose limit is used up do not stand in the way of others
                room = limit - len(leases)
                leases += await self.ledger.lease(worker, ready[:room])
                ready = ready[room:]
            if leases:
                return leases
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GLANCE):
                    await self._news.wait()

    async def close(self) -> None:
        await self.broker.close()
