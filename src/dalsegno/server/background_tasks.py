"""Background tasks of a server: each is referenced, its failure is logged, and it ends before the store closes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from dalsegno.errors import Unavailable

T = TypeVar("T")

logger = logging.getLogger("dalsegno.server")

END_SECONDS = 1.0
"""Seconds that remaining tasks have to finish when a server stops, and then again to end after cancellation."""


class BackgroundTasks:
    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()
        """Strong references: the event loop itself keeps only weak ones."""
        self.left = 0
        """Number of abandoned tasks that are still running."""

    def begin(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start a task. ``name`` identifies it in the log."""
        task = asyncio.create_task(work, name=name)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    def leave(self, task: asyncio.Task[None], *, continues: bool) -> None:
        """Abandon a task. If it continues and fails, the failure is logged."""
        self.left += 1
        task.add_done_callback(self._over)
        task.add_done_callback(_log_end if continues else _take_note)
        if not continues:
            task.cancel()

    def _over(self, _task: asyncio.Task[None]) -> None:
        self.left -= 1

    async def within(self, seconds: float, reading: Coroutine[Any, Any, T]) -> T:
        """Return the result of ``reading``, or raise Unavailable after ``seconds``. The read is then cancelled,
        without waiting until the driver has handled the cancellation."""
        task = self.begin(reading, "dalsegno-reading")
        task.add_done_callback(_take_note)
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            task.cancel()
        if not task.done():
            raise no_answer_within(seconds)
        return task.result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all tasks within a time limit: an unavailable store does not prevent a server from stopping."""
        if self._under_way:
            late = (await asyncio.wait(self._under_way, timeout=END_SECONDS))[1]
            for task in late:
                if not task.cancelling():  # a second cancellation would interrupt the driver's clean-up
                    task.cancel()
            if late:
                await asyncio.wait(late, timeout=END_SECONDS)


def no_answer_within(seconds: float) -> Unavailable:
    return Unavailable(f"the store did not answer within {seconds:g} s; nothing was done")


def _log_end(task: asyncio.Task[None]) -> None:
    if task.cancelled():
        logger.warning(
            "%s was abandoned because the server is stopping; its outcome is unknown", task.get_name()
        )
    elif (error := task.exception()) is not None:
        logger.error("%s failed after its caller had disconnected", task.get_name(), exc_info=error)


def _take_note(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
