"""The longest time for which an event loop did nothing else. It is processor time of this process: other processes do
not count, but a thread that keeps the interpreter from the loop does."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Self


class LoopGaps:
    """Measures while its block runs; ``longest`` is in seconds."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def __aenter__(self) -> Self:
        self._before = time.process_time()
        self._task = asyncio.create_task(self._watch())
        await asyncio.sleep(0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._note()
        self._task.cancel()

    async def _watch(self) -> None:
        while True:
            self._note()
            await asyncio.sleep(0.001)

    def _note(self) -> None:
        now = time.process_time()
        self.longest = max(self.longest, now - self._before)
        self._before = now
