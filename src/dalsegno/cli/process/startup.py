"""Start on a store whose server may not be available yet: long-running processes start in any order, and wait."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeVar

from dalsegno.app import App
from dalsegno.cli.output import span
from dalsegno.cli.run.session import Stopping
from dalsegno.errors import OperatorError, StoreReadOnly, Unavailable
from dalsegno.wiring import is_postgres

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
REMINDER = 60.0
"""Seconds between two warnings that the store is not available."""
CLOSING = 5.0
"""Seconds to close what a failed attempt opened: the server may not answer any more."""

NEVER_OPENED = "stopped before the store could be opened"

logger = logging.getLogger("dalsegno.cli")


class Awaited:
    """The state of a store that is being opened, readable from other threads."""

    def __init__(self) -> None:
        self.tried = asyncio.Event()
        """Set when the first attempt has ended."""
        self._why = ""

    def failed(self, error: OperatorError) -> None:
        self._why = f": {error}"
        self.tried.set()

    def refusal(self) -> Unavailable:
        return Unavailable(f"this process waits for its store{self._why}")


@asynccontextmanager
async def running_when_open(
    app: App, block: Callable[[], AbstractAsyncContextManager[T]], stopping: Stopping, awaited: Awaited
) -> AsyncIterator[T | None]:
    """Enter ``block`` on an open, writable store and yield its value; None if the process was asked to stop before."""
    async with AsyncExitStack() as entered:
        entering = asyncio.ensure_future(
            _begin_when_open(app, lambda: entered.enter_async_context(block()), awaited)
        )
        halt = asyncio.ensure_future(stopping.event.wait())
        try:
            await asyncio.wait((entering, halt), return_when="FIRST_COMPLETED")
            # Errors that do not pass are raised at once.
            begun = entering.result() if entering.done() else None
        finally:
            halt.cancel()
            await _ended(entering)
        yield begun


async def _begin_when_open(app: App, begin: Callable[[], Awaitable[T]], awaited: Awaited) -> T:
    began, logged_at, pause = time.monotonic(), None, FIRST_PAUSE
    while True:
        try:
            begun = await _begin(app, begin)
        except OperatorError as error:
            if not (is_postgres(app.url) and _is_temporary(error)):
                raise
            awaited.failed(error)
            now = time.monotonic()
            if logged_at is None or now - logged_at >= REMINDER:
                logged_at = now
                waited = f" for {span(now - began)}" if now - began >= 1 else ""
                logger.warning("the store cannot be opened%s; trying again: %s", waited, error)
        else:
            if logged_at is not None:
                logger.info("the store is open, after %s", span(time.monotonic() - began))
            awaited.tried.set()
            return begun
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


async def _begin(app: App, begin: Callable[[], Awaitable[T]]) -> T:
    """Open everything or nothing: a failed attempt leaves nothing open for the next one."""
    try:
        await app.host_here()
        expect_writable = app.engine.stack.expect_writable
        if expect_writable is not None:
            await expect_writable()
        return await begin()
    except BaseException:
        await _close(app)
        raise


async def _close(app: App) -> None:
    with contextlib.suppress(Exception):  # the first error is the one to report
        async with asyncio.timeout(CLOSING):
            await app.aclose()


def _is_temporary(error: OperatorError) -> bool:
    """Return whether waiting may resolve the error.

    An unavailable server comes back, and a standby is promoted. Missing rights of the user have the same class, but
    remain until they are granted.
    """
    if not isinstance(error, StoreReadOnly):
        return isinstance(error, Unavailable)
    from dalsegno.adapters.postgres.errors import READ_ONLY, sqlstate_of  # noqa: PLC0415 - only with its driver

    return sqlstate_of(error) == READ_ONLY


async def _ended(entering: asyncio.Future[T]) -> None:
    """Cancel the attempt and wait for its end before its loop is closed."""
    entering.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await entering
