"""The event loop of processes and threads that are our own: uvloop where it is installed.

An application that runs the engine in a loop of its own keeps that loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from importlib.util import find_spec
from typing import Any, TypeVar

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    if find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    import uvloop  # noqa: PLC0415 - only where it is installed

    return uvloop.new_event_loop()


def run(work: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` on that loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)
