"""Work that goes on when nobody waits for it any more: held, heard of if it breaks, over before the store closes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from dalsegno.errors import Unavailable

T = TypeVar("T")

logger = logging.getLogger("dalsegno.server")

PARTING = 1.0
"""Seconds that what is left has to end when a server stops, and then again to be ended."""


class Errands:
    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()
        """The loop itself would forget a task that nobody holds."""
        self.left = 0
        """How many of them nobody waits for."""

    def begin(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """``name`` says what it is, in the log."""
        task = asyncio.create_task(work, name=name)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    def leave(self, task: asyncio.Task[None], *, going_on: bool) -> None:
        """Nobody waits for it any more. If it goes on and breaks, the log tells."""
        self.left += 1
        task.add_done_callback(self._over)
        task.add_done_callback(_log_end if going_on else _take_note)
        if not going_on:
            task.cancel()

    def _over(self, _task: asyncio.Task[None]) -> None:
        self.left -= 1

    async def within(self, seconds: float, reading: Coroutine[Any, Any, T]) -> T:
        """What it reads, or Unavailable if that does not come in time: then it is given up, and nobody waits until its
        driver has done so."""
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
        """A store that is silent does not keep a server from stopping."""
        if self._under_way:
            late = (await asyncio.wait(self._under_way, timeout=PARTING))[1]
            for task in late:
                if not task.cancelling():  # a driver that is told again stops tidying up, too
                    task.cancel()
            if late:
                await asyncio.wait(late, timeout=PARTING)


def no_answer_within(seconds: float) -> Unavailable:
    return Unavailable(f"the store did not answer within {seconds:g} s; nothing was done")


def _log_end(task: asyncio.Task[None]) -> None:
    if task.cancelled():
        logger.warning("%s was given up: the server stops, and its outcome is unknown", task.get_name())
    elif (error := task.exception()) is not None:
        logger.error("%s broke after its caller had gone", task.get_name(), exc_info=error)


def _take_note(task: asyncio.Task[Any]) -> None:
    """Of how a reading ended that may have been given up: that is nobody's surprise."""
    if not task.cancelled():
        task.exception()
