"""A broker that delivers only the tokens of one execution and of the executions it starts: for ``dalsegno run``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Container, Sequence

from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken, Transition
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger

LONGEST_WAIT = 1.0
"""Seconds after which a token is found at the latest that another process made ready."""


class FocusedBroker:
    def __init__(
        self, broker: Broker, ledger: Ledger, execution: str, passed_over: Container[str] = ()
    ) -> None:
        """``passed_over``: queues that remote programs claim."""
        self.passed_over = passed_over
        self.broker = broker
        self.ledger = ledger
        self.executions = [execution]
        self._changed = asyncio.Event()

    def follow(self, parent: str | None, execution: str) -> None:
        """Follow a child of a followed execution."""
        if parent in self.executions and execution not in self.executions:
            self.executions.append(execution)

    def follows(self, execution: str) -> bool:
        return execution in self.executions

    def committed(self, transition: Transition) -> None:
        self.broker.committed(transition)

    async def announce(self, tokens: Sequence[ReadyToken]) -> None:
        """Announce tokens to all processes: timers of other executions may fire in this one."""
        self._changed.set()
        await self.broker.announce(tokens)

    async def offer(self, tokens: Sequence[ReadyToken]) -> None:
        await self.broker.offer(tokens)

    async def take(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        """Lease ready tokens from any queue: the queues a script uses are known only when it runs, and no other
        worker may run it. Only tokens of remote programs are excluded.
        """
        while True:
            self._changed.clear()
            found = [token for execution in self.executions for token in await self.ledger.ready(execution)]
            ready = [token for token in found if token.queue not in self.passed_over]
            ready.sort(key=lambda token: -token.priority)
            leases: list[Lease] = []
            while ready and len(leases) < limit:  # tokens whose limit is used up do not block the others
                room = limit - len(leases)
                leases += await self.ledger.lease(worker, ready[:room])
                ready = ready[room:]
            if leases:
                return leases
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LONGEST_WAIT):
                    await self._changed.wait()

    def settled(self, lease: Lease) -> None:
        self.broker.settled(lease)

    async def close(self) -> None:
        await self.broker.close()
