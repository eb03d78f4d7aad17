"""Waiting for executions to end: told at once by this process's own commits, noticed soon otherwise."""

from __future__ import annotations

import asyncio

from dalsegno.errors import NotFound
from dalsegno.model.execution import ENDED, ExecutionView
from dalsegno.ports.archive import Archive

GLANCE = 0.25
"""Another process may end the execution: whoever waits looks this often (and only while it waits)."""


class Endings:
    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self._waiters: dict[str, asyncio.Event] = {}

    def notice(self, execution: str) -> None:
        waiter = self._waiters.get(execution)
        if waiter is not None:
            waiter.set()

    async def wait(self, execution: str, timeout: float | None = None) -> ExecutionView:
        """The ended execution; raises TimeoutError if it has not ended by then."""
        async with asyncio.timeout(timeout):
            waiter = self._waiters.setdefault(execution, asyncio.Event())
            try:
                while True:
                    waiter.clear()
                    view = await self.archive.execution(execution)
                    if view is None:
                        raise NotFound(f"there is no execution {execution} in this store")
                    if view.state in ENDED:
                        return view
                    await self._glance(waiter)
            finally:
                self._waiters.pop(execution, None)

    async def _glance(self, waiter: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(GLANCE):
                await waiter.wait()
        except TimeoutError:
            return
