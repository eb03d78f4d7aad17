"""Names that a worker has given up: what is leased under one without its knowing is taken back when nothing else runs
under it, not only when its last heartbeat has lapsed."""

from __future__ import annotations

import asyncio

from dalsegno.engine.heartbeat import Names
from dalsegno.engine.reconciler import Reconciler

LOOK_EVERY = 5.0
"""Seconds between two looks, as long as there is such a name."""


class RetiredNames:
    def __init__(self, names: Names, reconciler: Reconciler) -> None:
        self._names = names
        self._reconciler = reconciler
        self._news = asyncio.Event()

    def notice(self) -> None:
        """One was given up."""
        self._news.set()

    async def run(self) -> None:
        while True:
            if not self._names.given_up:
                await self._news.wait()
                self._news.clear()
            await asyncio.sleep(LOOK_EVERY)
            if names := self._names.retired():
                await self._reconciler.take_back(names, "of which this worker had not heard")
                self._names.forget(names)
