"""A broker that drops, duplicates, delays and reorders. Messages carry ids; leases come from the ledger (B1, B2)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken
from dalsegno.ports.ledger import Ledger
from dalsegno.testing.simulation.faults import Faults


class Post:
    """The messages of one simulated system, shared by all its processes."""

    def __init__(self, faults: Faults, order: Random | None) -> None:
        self._faults = faults
        self._order = order
        self._messages: list[ReadyToken] = []
        self._waiting: list[asyncio.Future[None]] = []

    def send(self, token: ReadyToken) -> None:
        fault = self._faults.message()
        kind = fault.kind if fault is not None else None
        if kind == "drop":
            return
        if fault is not None and kind == "delay":
            asyncio.get_running_loop().call_later(fault.arg, self._put, token)
            return
        self._put(token)
        if kind == "duplicate":
            self._put(token)

    def _put(self, token: ReadyToken) -> None:
        self._messages.append(token)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def receive(self, queues: Sequence[str], limit: int) -> list[ReadyToken]:
        """Takes messages off the post: whoever dies with them in hand has lost them."""
        while True:
            mine = [token for token in self._messages if token.queue in queues]
            if self._order is not None:
                self._order.shuffle(mine)
            del mine[limit:]
            if mine:
                for token in mine:
                    self._messages.remove(token)
                return mine
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future


class MessageBroker:
    """Each message names a token, as a message queue would carry it."""

    def __init__(self, post: Post, ledger: Ledger) -> None:
        self._post = post
        self._ledger = ledger

    async def offer(self, tokens: Sequence[ReadyToken]) -> None:
        await self.announce(tokens)

    async def announce(self, tokens: Sequence[ReadyToken]) -> None:
        for token in tokens:
            self._post.send(token)
        await asyncio.sleep(0)

    async def take(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        while True:
            messages = await self._post.receive(queues, limit)
            leases = await self._ledger.lease(worker, messages)
            if leases:
                return leases

    async def close(self) -> None:
        """The post outlives its clients."""


class NewsBroker(MessageBroker):
    """A message only says that there is something: workers claim what the ledger has ready."""

    async def take(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        while True:
            leases = await self._ledger.claim(worker, queues, limit)
            if leases:
                return leases
            await self._post.receive(queues, limit)
