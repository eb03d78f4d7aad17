"""Waiting for executions to end: told at once by this process's own commits, noticed soon otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict

from dalsegno.errors import NotFound, OperatorError
from dalsegno.model.execution import ENDED, ExecutionView
from dalsegno.ports.archive import Archive

logger = logging.getLogger("dalsegno.endings")

REMEMBERED = 10_000
GLANCE = 0.25
"""Another process may end an execution. While anybody waits, one query this often asks about all of them."""


class Endings:
    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}
        self._watch: asyncio.Task[None] | None = None
        self._running: OrderedDict[str, None] = OrderedDict()
        """Started here and not known to have ended: whoever waits for one of these need not look first."""

    def started(self, execution: str) -> None:
        self._running[execution] = None
        if len(self._running) > REMEMBERED:
            self._running.popitem(last=False)

    def notice(self, execution: str) -> None:
        self._running.pop(execution, None)
        for waiter in self._waiters.pop(execution, ()):
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, execution: str, timeout: float | None = None) -> ExecutionView:  # noqa: ASYNC109 - as users know it
        """The ended execution; raises TimeoutError if it has not ended by then."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(execution, []).append(waiter)
        try:
            if execution not in self._running:
                view = await self._view(execution)
                if view.state in ENDED:
                    return view
            if self._watch is None:
                self._watch = asyncio.create_task(self._watch_others())
            async with asyncio.timeout(timeout):
                await waiter
            return await self._view(execution)
        finally:
            self._forget(execution, waiter)

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch

    def _forget(self, execution: str, waiter: asyncio.Future[None]) -> None:
        waiters = self._waiters.get(execution)
        if waiters is not None:
            waiters[:] = [other for other in waiters if other is not waiter]
            if not waiters:
                del self._waiters[execution]

    async def _view(self, execution: str) -> ExecutionView:
        view = await self.archive.execution(execution)
        if view is None:
            raise NotFound(f"there is no execution {execution} in this store")
        return view

    async def _watch_others(self) -> None:
        try:
            while self._waiters:
                await asyncio.sleep(GLANCE)
                try:
                    states = await self.archive.states(list(self._waiters))
                except OperatorError as error:
                    logger.warning("cannot look for ended executions (%s); trying again", error)
                    continue
                for execution, state in states.items():
                    if state in ENDED:
                        self.notice(execution)
        finally:
            self._watch = None
