"""Work that takes long, so that many pieces of it together do not keep an event loop from its other work.

Pieces in the loop are slices, admitted one at a time; in between the loop goes on with everything else, for as long as
the slice took or until it has nothing else to do. Pieces in the thread follow each other. Both queues take turns by
workflow: a hundred pieces of one workflow delay a piece of another one by one.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from weakref import WeakKeyDictionary

from dalsegno.engine.memory_budget import waiting

T = TypeVar("T")

SLICE = 0.005
"""Seconds of work after which others get their turn."""
PAUSE = 0.002
"""Seconds for which the thread pauses then. While it computes, the loop waits for the interpreter again and again."""
IDLE = 0.0002
"""Seconds between two rounds of a loop that has nothing else to do."""

_clock = time.monotonic


class FairQueue:
    """Those who wait, by workflow; `next` takes one of each in turn."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._lines)

    def join(self, workflow: str) -> asyncio.Future[None]:
        place = asyncio.get_running_loop().create_future()
        self._lines.setdefault(workflow, deque()).append(place)
        return place

    def next(self) -> asyncio.Future[None] | None:
        """The next one that still waits."""
        while self._lines:
            workflow, line = self._lines.popitem(last=False)
            place = line.popleft()
            if line:
                self._lines[workflow] = line
            if not place.done():
                return place
        return None


class HeavyWork:
    """One per event loop."""

    def __init__(self) -> None:
        self._slices = FairQueue()
        self._admitting = False
        self._admitted_at = self._seen_at = self._next_at = 0.0
        self._running = False
        self._jobs = FairQueue()
        self._is_busy = False
        self._thread: ThreadPoolExecutor | None = None

    async def turn(self, workflow: str) -> None:
        """Wait until a slice may run. It ends where its task awaits something else."""
        place = self._slices.join(workflow)
        if not self._admitting:
            self._admitting = True
            self._seen_at = 0.0
            asyncio.get_running_loop().call_soon(self._admit)
        with waiting():
            await place

    def _admit(self) -> None:
        now = _clock()
        if self._running:  # the slice has just ended: a task that was woken runs before this
            self._running = False
            self._next_at = now + min(now - self._admitted_at, 2 * SLICE)
        elif now >= self._next_at or now - self._seen_at < IDLE:
            place = self._slices.next()
            if place is None:
                self._admitting = False
                return
            place.set_result(None)
            self._running = True
            self._admitted_at = now
        self._seen_at = now
        asyncio.get_running_loop().call_soon(self._admit)

    async def in_thread(self, workflow: str, work: Callable[[], T]) -> T:
        """Run ``work`` in the one thread there is for this."""
        if self._is_busy:
            with waiting():
                await self._wait(self._jobs.join(workflow))
        self._is_busy = True
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "dalsegno-heavy")
        loop = asyncio.get_running_loop()
        try:
            job = loop.run_in_executor(self._thread, work)
        except NotImplementedError:  # a loop without threads
            self._pass_on()
            return work()
        job.add_done_callback(self._done)
        return await asyncio.shield(job)

    async def _wait(self, place: asyncio.Future[None]) -> None:
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # it was this one's turn
                self._pass_on()
            raise

    def _done(self, job: asyncio.Future[T]) -> None:
        if not job.cancelled():
            job.exception()  # retrieved, so that asyncio does not log it where the caller has gone
        self._pass_on()

    def _pass_on(self) -> None:
        place = self._jobs.next()
        self._is_busy = place is not None
        if place is not None:
            place.set_result(None)


_OF_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, HeavyWork] = WeakKeyDictionary()


def heavy_work() -> HeavyWork:
    """That of the running loop."""
    loop = asyncio.get_running_loop()
    found = _OF_LOOPS.get(loop)
    if found is None:
        found = _OF_LOOPS[loop] = HeavyWork()
    return found
