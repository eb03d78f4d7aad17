"""Waiting for what only looking can tell: it fails, and says what for, when patience ends."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 60.0
LOOK_EVERY = 0.01


def until(look: Callable[[], T | None], what: str, seconds: float = PATIENCE) -> T:
    """The first answer that is not falsy."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(LOOK_EVERY)
    raise AssertionError(f"not observed within {seconds:g} s: {what}")


async def come_about(look: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Until the answer, or what it gives when it is awaited, is not falsy; the event loop goes on meanwhile."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return
        await asyncio.sleep(LOOK_EVERY)
    raise AssertionError(f"not observed within {seconds:g} s: {what}")
