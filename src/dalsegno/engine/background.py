"""Tasks that serve many callers: they belong to none of them."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Coroutine
from typing import Any


def in_background(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task in a context of its own: it is not part of the caller's trace, and not called off with the caller."""
    return contextvars.Context().run(asyncio.get_running_loop().create_task, work)


def is_under_way(task: asyncio.Task[None] | None) -> bool:
    return task is not None and not task.done()


async def end(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
