"""Large values on their way to callers: a process holds only so many bytes of them at a time.

An input may have 16 MiB and an output 64 MiB, and whoever reads slowly keeps them in memory for as long. Calls that
read large values take turns, fairly by key (`Office.large_values`). One that waits too long is answered with 503, to
come again; a client that takes its reply very slowly is disconnected when others wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from dalsegno.engine.offload import Lane, requester
from dalsegno.model.execution import ExecutionView
from dalsegno.server import deadlines
from dalsegno.server.office import Office

SMALL = 1024 * 1024
"""Bytes that are not counted."""
LEAST_RATE = 1024 * 1024
"""Bytes in a second that a client takes of a large reply, beyond its first ``reply_seconds``, if it may keep others
waiting."""
LATE_EVERY = 1.0
"""Seconds between two looks whether anybody waits for a client that is late."""


async def outline(office: Office, execution: str) -> ExecutionView:
    """Of an execution whose values the call is about to read: their bytes are its own until it is over. Raises
    Overloaded where they do not become free in time."""
    view = await office.client.outline(execution)
    await _hold(office, view.value_bytes)
    return view


async def whole(office: Office, execution: str) -> ExecutionView:
    """An execution with its values, which are held until the call is over."""
    await outline(office, execution)
    return await office.client.status(execution)


async def with_results(office: Office, execution: str) -> ExecutionView:
    """As ``outline``, for a call that reads what all nodes left."""
    view = await office.client.outline(execution)
    size = view.value_bytes + await office.client.stack.blobs.stored(execution)
    await _hold(office, size)
    return replace(view, value_bytes=size)


def is_large(view: ExecutionView) -> bool:
    return view.value_bytes > SMALL


async def _hold(office: Office, size: int) -> None:
    if size <= SMALL:
        return
    key, weight, lane = requester.get().key, min(size, office.settings.large_bytes), office.large_values
    await lane.enter(key, weight)
    watch = _Watch(lane, office.settings.reply_seconds + size / LEAST_RATE, deadlines.hanging_up())

    def over() -> None:
        watch.stop()
        lane.leave(key, weight)

    deadlines.at_end(over)


class _Watch:
    """Disconnects a client that is late when others wait."""

    def __init__(self, lane: Lane, seconds: float, hang_up: Callable[[], None]) -> None:
        self._lane = lane
        self._hang_up = hang_up
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        if self._lane.waiting:
            self._hang_up()
        self._timer = asyncio.get_running_loop().call_later(LATE_EVERY, self._look)
