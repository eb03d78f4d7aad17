"""A thread that owns a connection: jobs in, results out, in order."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from dalsegno.errors import Unavailable

T = TypeVar("T")
Job = Callable[[], Any]
Answer = tuple[Any, BaseException | None]
"""A result, or the error instead."""
Entry = tuple[Job, Callable[[Answer], None]] | None
"""A job, and the callback for its answer. None ends the thread."""

GROUP_LIMIT = 64
"""Most jobs that are handed over together."""


class Idle(Protocol):
    """What the thread does while there are no jobs."""

    def patience(self) -> float:
        """Seconds without a job after which it looks."""

    def look(self) -> None: ...


class DatabaseThread:
    """Runs jobs one group at a time. ``run`` is given the jobs that gathered meanwhile and answers each of them."""

    def __init__(
        self,
        name: str,
        run: Callable[[Sequence[Job]], list[Answer]],
        idle: Idle | None = None,
    ) -> None:
        self._run = run
        self._idle = idle
        self._queue: SimpleQueue[Entry] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def call(self, job: Callable[[], T]) -> T:
        """The job's result; the event loop goes on meanwhile. A caller that is cancelled does not stop the job."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def answer(reply: Answer) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle_future, future, reply)

        self._put(job, answer)
        return await future

    def call_blocking(self, job: Callable[[], T]) -> T:
        """The same for a thread without an event loop."""
        future: Future[T] = Future()
        self._put(job, lambda reply: _settle_future(future, reply))
        return future.result()

    def close(self) -> None:
        """Finishes what was asked before, then ends."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _put(self, job: Job, answer: Callable[[Answer], None]) -> None:
        if self._closed:
            raise Unavailable("the store is closed")
        self._queue.put((job, answer))

    def _work(self) -> None:
        open_for_work = True
        while open_for_work:
            open_for_work = self._work_once()

    def _work_once(self) -> bool:
        """One group of jobs. Nothing of their answers, which may be large, is held until the next."""
        group, open_for_work = self._gather()
        if group:
            answers = self._run([job for job, _ in group])
            for (_, answer), reply in zip(group, answers, strict=True):
                answer(reply)
        return open_for_work

    def _gather(self) -> tuple[list[tuple[Job, Callable[[Answer], None]]], bool]:
        group = []
        entry = self._next()
        while entry is not None:
            group.append(entry)
            if len(group) == GROUP_LIMIT:
                return group, True
            try:
                entry = self._queue.get_nowait()
            except Empty:
                return group, True
        return group, False

    def _next(self) -> Entry:
        while self._idle is not None:
            try:
                return self._queue.get(timeout=self._idle.patience())
            except Empty:
                self._idle.look()
        return self._queue.get()


def _settle_future(future: asyncio.Future[Any] | Future[Any], reply: Answer) -> None:
    result, error = reply
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
