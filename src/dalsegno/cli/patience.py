"""Beginning on a store whose server may not be there yet: what runs for long is started in any order, and waits."""

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
from dalsegno.cli.session import Stopping
from dalsegno.errors import OperatorError, StoreReadOnly, Unavailable
from dalsegno.wiring import is_postgres

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
REMINDER = 60.0
"""Seconds after which it is said again that the store is away."""
CLOSING = 5.0
"""Seconds in which what was opened by a try that failed is closed: its server may be silent by now."""

NEVER_OPENED = "stopped before the store could be opened"

logger = logging.getLogger("dalsegno.cli")


class Awaited:
    """The store of a process that begins, for whoever asks meanwhile; also from other threads."""

    def __init__(self) -> None:
        self.tried = asyncio.Event()
        """Set once it is known how the first try ended."""
        self._why = ""

    def failed(self, error: OperatorError) -> None:
        self._why = f": {error}"
        self.tried.set()

    def refusal(self) -> Unavailable:
        return Unavailable(f"this process waits for its store{self._why}")


@asynccontextmanager
async def running_patiently(
    app: App, block: Callable[[], AbstractAsyncContextManager[T]], stopping: Stopping, awaited: Awaited
) -> AsyncIterator[T | None]:
    """Inside, ``block`` is entered, on an open store that takes writes. None: somebody wanted to stop before."""
    async with AsyncExitStack() as entered:
        entering = asyncio.ensure_future(
            _begin_at_last(app, lambda: entered.enter_async_context(block()), awaited)
        )
        halt = asyncio.ensure_future(stopping.event.wait())
        try:
            await asyncio.wait((entering, halt), return_when="FIRST_COMPLETED")
            # What waiting does not mend is raised at once.
            begun = entering.result() if entering.done() else None
        finally:
            halt.cancel()
            await _ended(entering)
        yield begun


async def _begin_at_last(app: App, begin: Callable[[], Awaitable[T]], awaited: Awaited) -> T:
    began, said_at, pause = time.monotonic(), None, FIRST_PAUSE
    while True:
        try:
            begun = await _begin(app, begin)
        except OperatorError as error:
            if not (is_postgres(app.url) and _may_pass(error)):
                raise
            awaited.failed(error)
            now = time.monotonic()
            if said_at is None or now - said_at >= REMINDER:
                said_at = now
                waited = f" for {span(now - began)}" if now - began >= 1 else ""
                logger.warning("the store cannot be opened%s, and is tried again: %s", waited, error)
        else:
            if said_at is not None:
                logger.info("the store is there, after %s", span(time.monotonic() - began))
            awaited.tried.set()
            return begun
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


async def _begin(app: App, begin: Callable[[], Awaitable[T]]) -> T:
    """Everything or nothing: a server that goes away in between leaves nothing half open for the next try."""
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
    with contextlib.suppress(Exception):  # what went wrong before is what is told
        async with asyncio.timeout(CLOSING):
            await app.aclose()


def _may_pass(error: OperatorError) -> bool:
    """Whether waiting may mend it: a server that is away comes back, and a standby is promoted. A user without rights
    is refused in the same class, and stays so until somebody acts."""
    if not isinstance(error, StoreReadOnly):
        return isinstance(error, Unavailable)
    from dalsegno.adapters.postgres.errors import sqlstate_of  # noqa: PLC0415 - only who has such a store has the driver
    from dalsegno.adapters.postgres.sqlstates import READ_ONLY  # noqa: PLC0415 - the same

    return sqlstate_of(error) == READ_ONLY


async def _ended(entering: asyncio.Future[T]) -> None:
    """Before its loop is closed."""
    entering.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await entering
