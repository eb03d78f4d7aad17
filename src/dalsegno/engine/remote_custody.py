"""Which remote worker has which tasks: kept while it speaks, given back where it does not know of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from dalsegno.engine.remote_sessions import Held, Session, Sessions, tasks_in
from dalsegno.engine.remote_tasks import RemoteSettings
from dalsegno.engine.worker_info import read_info
from dalsegno.errors import OperatorError
from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken

if TYPE_CHECKING:
    from dalsegno.engine.engine import Engine

logger = logging.getLogger("dalsegno.remote")


class Custody:
    def __init__(self, engine: Engine, settings: RemoteSettings) -> None:
        self.settings = settings
        self.ledger = engine.stack.ledger
        self.broker = engine.stack.broker
        self.sessions = Sessions()
        self._background: set[asyncio.Task[None]] = set()

    async def keep_alive(self, session: Session, seconds: float) -> None:
        session.written = self.ledger.now() + seconds
        await asyncio.to_thread(self.ledger.heartbeat, session.name, seconds, session.info(session.name))

    async def renew(self, session: Session, owner: str) -> None:
        if owner == session.name:
            await self.keep_alive(session, self.settings.lease)
            return
        rows = await self.ledger.workers()
        known = next((read_info(row.info) for row in rows if row.id == owner), None)
        info = session.info(owner, known)
        await asyncio.to_thread(self.ledger.heartbeat, owner, self.settings.lease, info)

    async def take_unknown_back(self, session: Session) -> None:
        """It speaks, and does not say that it knows of these: the reply that brought them was lost on the way."""
        late = session.unconfirmed(self.ledger.now() - self.settings.first)
        late = [held for held in late if held.settling is None]
        if not late:
            return
        elsewhere = await self._confirmed_elsewhere(session)
        for held in late:
            if held.lease.token in elsewhere:
                held.confirmed = True
        await self.give_back([held for held in late if not held.confirmed])

    async def _confirmed_elsewhere(self, session: Session) -> set[str]:
        """What the worker told another server of the same store."""
        rows = await self.ledger.workers()
        return {token for row in rows if row.id == session.name for token in tasks_in(row.info)}

    async def give_back(self, tasks: Sequence[Held]) -> None:
        for held in tasks:
            self.sessions.let_go(held.lease.token)
            await self.hand_back(held.owner, [held.lease])

    async def hand_back(self, owner: str, leases: Sequence[Lease]) -> None:
        """Ready again, no loss counted."""
        await self.ledger.release(owner, leases)
        ready = [ReadyToken(each.token, each.execution, each.queue, each.priority) for each in leases]
        await self.broker.announce(ready)

    def later(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(self._told(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _told(self, work: Awaitable[None]) -> None:
        try:
            await work
        except OperatorError as error:
            logger.warning("leases of remote workers are not handed back now, and expire: %s", error)

    async def settled(self) -> None:
        """When nothing is being handed back any more."""
        await asyncio.gather(*self._background, return_exceptions=True)
