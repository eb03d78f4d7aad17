"""Opening a store whose server may not be there yet: what runs for long is started in any order, and waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from dalsegno.app import App
from dalsegno.cli.output import span
from dalsegno.cli.session import Stopping
from dalsegno.errors import Unavailable
from dalsegno.wiring import is_postgres

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
REMINDER = 60.0
"""Seconds after which it is said again that the store is away."""

NEVER_OPENED = "stopped before the store could be opened"

logger = logging.getLogger("dalsegno.cli")


async def open_patiently(app: App, stopping: Stopping) -> bool:
    """Opens the application here. False: somebody wanted to stop before the store's server could be reached."""
    if not is_postgres(app.url):
        await app.host_here()
        return True
    opening = asyncio.ensure_future(_open_at_last(app.host_here))
    halt = asyncio.ensure_future(stopping.event.wait())
    try:
        await asyncio.wait((opening, halt), return_when="FIRST_COMPLETED")
        if opening.done():
            opening.result()  # what waiting does not mend is told at once
        return opening.done()
    finally:
        halt.cancel()
        await _ended(opening)


async def _open_at_last(open_once: Callable[[], Awaitable[object]]) -> None:
    began, said_at, pause = time.monotonic(), None, FIRST_PAUSE
    while True:
        try:
            await open_once()
        except Unavailable as error:
            now = time.monotonic()
            if said_at is None or now - said_at >= REMINDER:
                said_at = now
                waited = f" for {span(now - began)}" if now - began >= 1 else ""
                logger.warning("the store cannot be opened%s, and is tried again: %s", waited, error)
        else:
            if said_at is not None:
                logger.info("the store is there, after %s", span(time.monotonic() - began))
            return
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


async def _ended(opening: asyncio.Future[None]) -> None:
    """Before its loop is closed."""
    opening.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await opening
