"""What a program still says when it ends without having closed its application."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dalsegno.engine.engine import Engine

SECONDS = 3.0
"""For which the end of a program may be held up."""


def part_at_exit(engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    """Other processes are told of what was started here: the thread of the engine's loop ends with the program."""
    known, process = weakref.ref(engine), os.getpid()

    def part() -> None:
        left = known()
        if left is not None and process == os.getpid():  # a fork has the object, and not its thread
            _part(left, loop)

    _at_exit(part)


def _part(engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    """A worker that was not closed is one that died: others take over when its leases end."""
    if loop.is_closed() or engine.worker is not None:
        return
    closing = asyncio.run_coroutine_threadsafe(engine.stack.broker.close(), loop)
    concurrent.futures.wait([closing], SECONDS)


def _at_exit(call: Callable[[], None]) -> None:
    """Before the threads end that look up the names of hosts: at `atexit` they are gone."""
    register = getattr(threading, "_register_atexit", atexit.register)
    with contextlib.suppress(RuntimeError):  # the program ends already
        register(call)
