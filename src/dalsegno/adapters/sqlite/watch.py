"""SqliteWatch: the reads that follow a commit of another process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from dalsegno.adapters.sqlite import ledger
from dalsegno.adapters.sqlite.store import SqliteStore
from dalsegno.errors import OperatorError

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
