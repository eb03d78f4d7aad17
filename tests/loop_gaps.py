"""The longest time for which an event loop could do nothing else because of its own process: it worked, or a thread
kept the interpreter from it. What other processes and the host took does not count."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

SCHEDULE = Path("/proc/thread-self/schedstat")
"""Its second number: the nanoseconds for which this thread could have run and was given no core."""


@dataclass(frozen=True)
class Moment:
    """The clocks of a thread, read at once."""

    process: float
    own: float
    core: float
    """Seconds in which the thread had a core or wanted none: it worked, slept, or waited for the interpreter."""

    @classmethod
    def now(cls) -> Moment:
        return cls(time.process_time(), time.thread_time(), time.monotonic() - _without_core())

    def held_since(self, earlier: Moment) -> float:
        """The seconds that the process took from the thread. Its other threads may work while this one is given no
        core, and the one that has the interpreter may be given none while this one waits for it."""
        return min(self.process - earlier.process, self.core - earlier.core)


def _without_core() -> float:
    try:
        return int(SCHEDULE.read_text().split()[1]) / 1e9
    except (OSError, IndexError):  # this kernel does not say
        return 0.0


class LoopGaps:
    """Measures while its block runs, in seconds: the ``longest`` turn, and the most that the loop ``worked`` in one."""

    def __init__(self) -> None:
        self.longest = self.worked = 0.0

    async def __aenter__(self) -> Self:
        self._before = Moment.now()
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
        now = Moment.now()
        self.longest = max(self.longest, now.held_since(self._before))
        self.worked = max(self.worked, now.own - self._before.own)
        self._before = now
