"""Threads for turns of Python workflows.

A thread that has finished a turn takes the next one itself, by the rules of `FairQueue`: no turn waits for the event
loop, and the loop is not woken for each. Finished turns are reported to it together.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from threading import Lock

from dalsegno.ports.shares import FairQueue


class _Turn:
    """Work for a thread, and the future of its end."""

    __slots__ = ("context", "error", "future", "reports", "work", "workflow")

    def __init__(self, workflow: str, work: Callable[[], None], context: Context, reports: _Reports) -> None:
        self.workflow = workflow
        self.work = work
        self.context = context
        self.reports = reports
        self.future: asyncio.Future[None] = reports.loop.create_future()
        self.error: BaseException | None = None

    def run(self) -> None:
        if self.future.cancelled():
            return
        try:
            self.context.run(self.work)
        except BaseException as error:  # noqa: BLE001 - raised where the turn is awaited
            self.error = error
        self.reports.add(self)

    def settle(self) -> None:
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(self.error)


class _Reports:
    """Finished turns of an event loop, which is notified once of those that finish at about the same time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._finished: deque[_Turn] = deque()
        self._is_notified = False

    def add(self, turn: _Turn) -> None:
        """Report a turn from its thread."""
        self._finished.append(turn)
        if not self._is_notified:
            self._is_notified = True
            with contextlib.suppress(RuntimeError):  # the loop is closed, and with it all waiters
                self.loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        self._is_notified = False  # first: turns added from now on notify again
        while self._finished:
            self._finished.popleft().settle()


class TurnThreads:
    """At most ``count`` threads, of which one workflow uses at most a share."""

    def __init__(self, count: int, share: float) -> None:
        self._lock = Lock()
        self._queue: FairQueue[_Turn] = FairQueue(count, share)
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="dalsegno-turn")
        self._beginning: deque[_Turn] = deque()
        """Turns that have a slot, each for a thread that begins."""
        self._reports: _Reports | None = None

    def run(self, workflow: str, work: Callable[[], None]) -> asyncio.Future[None]:
        """Run a turn and return the future of its end. A turn whose future is cancelled does not begin; one that has
        begun keeps its thread until it ends.
        """
        loop = asyncio.get_running_loop()
        if self._reports is None or self._reports.loop is not loop:
            self._reports = _Reports(loop)
        turn = _Turn(workflow, work, copy_context(), self._reports)
        with self._lock:
            may_begin = self._queue.enter(workflow, turn)
        if may_begin:
            self._beginning.append(turn)
            self._pool.submit(self._run_turns)
        return turn.future

    def _run_turns(self) -> None:
        """Run a turn that has a slot, and then those that wait, in this thread."""
        turn: _Turn | None = self._beginning.popleft()
        while turn is not None:
            turn.run()
            with self._lock:
                self._queue.leave(turn.workflow)
                turn = self._queue.next()

    def close(self) -> None:
        """Cancel the turns that wait. Those that run end on their own."""
        with self._lock:
            waiting = self._queue.clear()
        for turn in waiting:
            turn.future.cancel()
        self._pool.shutdown(wait=False)
