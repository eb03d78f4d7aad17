"""Names that a worker has given up: what is leased under one without its knowing is taken back when nothing else runs
under it, not only when its last heartbeat has lapsed."""

from __future__ import annotations

import asyncio

from dalsegno.engine.heartbeat import Names
from dalsegno.engine.reconciler import Reconciler

LOOK_EVERY = 5.0
"""Seconds between two looks at the names, which cost the store nothing where none was given up."""


class RetiredNames:
    def __init__(self, names: Names, reconciler: Reconciler) -> None:
        self._names = names
        self._reconciler = reconciler

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if names := self._names.retired():
                await self._reconciler.take_back(names, "of which this worker had not heard")
                self._names.forget(names)
