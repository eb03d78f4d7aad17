"""SqliteBroker: announcements inside this process, and a check of the file when another one has committed;
SqliteWatch: the reads that follow such a commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from dalsegno.adapters.sqlite import ledger
from dalsegno.adapters.sqlite.ledger import SqliteLedger
from dalsegno.adapters.sqlite.store import SqliteStore
from dalsegno.errors import OperatorError
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


# -- the reads that follow a commit of another process -------------------------------------------------------

logger = logging.getLogger("dalsegno.sqlite")

DELIVERY_PAUSE = 0.05
"""Seconds after which an entry of the outbox is delivered here: the process that wrote it mostly does so at once."""


class Repeated:
    """Runs one read at a time. A request during a read is answered by another one after it."""

    def __init__(self, look: Callable[[], Awaitable[None]]) -> None:
        self._look = look
        self._is_stale = False
        self._task: asyncio.Task[None] | None = None

    def soon(self) -> None:
        self._is_stale = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        try:
            while self._is_stale:
                self._is_stale = False
                await self._look()
        except OperatorError as error:
            logger.debug("cannot read what another process has committed (%s)", error)
        finally:
            self._task = None


class SqliteWatch:
    """The port's Watch."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._on_due: Callable[[float], None] = lambda at: None
        self._on_outbox: Callable[[], None] = lambda: None
        self._schedules = Repeated(self._look_at_schedules)

    def on_commit(self, committed: Callable[[], None]) -> None:
        self._store.elsewhere.listen(committed)

    def on_upkeep(self, due: Callable[[float], None], outbox: Callable[[], None]) -> None:
        self._on_due, self._on_outbox = due, outbox
        self._store.elsewhere.listen(self._schedules.soon)

    async def close(self) -> None:
        await self._schedules.close()

    async def _look_at_schedules(self) -> None:
        due, entry = await self._store.read(ledger.schedules)
        if due is not None:
            self._on_due(due)
        if entry is not None:
            await asyncio.sleep(DELIVERY_PAUSE)
            _, still_there = await self._store.read(ledger.schedules)
            if still_there == entry:
                self._on_outbox()
