"""Waiting for executions to end: told at once by this process's own commits, noticed soon otherwise.

How one ended that another process says has ended is read from the store, together with all others of which that was
said meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice

from dalsegno.errors import NotFound, OperatorError
from dalsegno.model.effect import EndIfLast, FinishExecution
from dalsegno.model.execution import ENDED, Ending, ExecutionView
from dalsegno.model.transition import Transition
from dalsegno.ports.archive import Archive

logger = logging.getLogger("dalsegno.endings")

REMEMBERED = 10_000
FIRST_GLANCE = 0.01
"""It may have ended long before anybody waited."""
GLANCE = 0.25
"""Another process may end an execution. While anybody waits, one query this often asks about some of them."""
ASKED_AT_ONCE, TURNS, MOST_ASKED = 250, 8, 2_000
"""So many at least, the others come next, in so many turns. However many wait, a look costs no more than a bit."""
READ_AT_ONCE = 100
"""Results may be large."""


class Endings:
    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.waiting: Callable[[], None] = lambda: None
        """Called while somebody waits, so that other processes tell what they end."""
        self._waiters: dict[str, list[asyncio.Future[Ending | None]]] = {}
        """Told None where it was removed as soon as it had ended."""
        self._watch: asyncio.Task[None] | None = None
        self._running: OrderedDict[str, None] = OrderedDict()
        """Started here and not known to have ended: whoever waits for one of these need not look first."""
        self._unread: dict[str, None] = {}
        """They have ended, and somebody waits to be told how."""
        self._reading: asyncio.Task[None] | None = None

    def started(self, execution: str) -> None:
        self._running[execution] = None
        if len(self._running) > REMEMBERED:
            self._running.popitem(last=False)

    def notice(self, execution: str, ending: Ending | None) -> None:
        """It has ended; ``ending`` is given by the process whose commit ended it."""
        self._running.pop(execution, None)
        if ending is None:
            self._ask_how(execution)
        else:
            self._tell(execution, ending)

    def notice_elsewhere(self, execution: str) -> None:
        """Another process says that it has ended."""
        self.notice(execution, None)

    async def wait(self, execution: str, timeout: float | None = None) -> ExecutionView:  # noqa: ASYNC109 - as users know it
        """The ended execution; raises TimeoutError if it has not ended by then."""
        await self.ending(execution, timeout)
        return await self._view(execution)

    async def ending(self, execution: str, timeout: float | None = None) -> Ending:  # noqa: ASYNC109 - as users know it
        """How it ended; raises TimeoutError if it has not ended by then."""
        waiter: asyncio.Future[Ending | None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(execution, []).append(waiter)
        self.waiting()
        try:
            if execution not in self._running:
                ending = (await self._view(execution)).ending
                if ending is not None:
                    return ending
            if self._watch is None:
                self._watch = asyncio.create_task(self._watch_others())
            async with asyncio.timeout(timeout):
                ending = await waiter
            if ending is None:
                raise _nothing(execution)
            return ending
        finally:
            self._forget(execution, waiter)

    async def close(self) -> None:
        for task in (self._watch, self._reading):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def _forget(self, execution: str, waiter: asyncio.Future[Ending | None]) -> None:
        waiters = self._waiters.get(execution)
        if waiters is not None:
            waiters[:] = [other for other in waiters if other is not waiter]
            if not waiters:
                del self._waiters[execution]

    async def _view(self, execution: str) -> ExecutionView:
        view = await self.archive.execution(execution)
        if view is None:
            raise _nothing(execution)
        return view

    def _tell(self, execution: str, ending: Ending | None) -> None:
        for waiter in self._waiters.pop(execution, ()):
            if not waiter.done():
                waiter.set_result(ending)

    def _ask_how(self, execution: str) -> None:
        if execution in self._waiters:
            self._unread[execution] = None
            if self._reading is None:
                self._reading = asyncio.create_task(self._read_endings())

    async def _read_endings(self) -> None:
        """What is said meanwhile is read with the next. Where the store is away, who waits is looked for later."""
        try:
            while self._unread:
                asked = list(islice(self._unread, READ_AT_ONCE))
                for execution in asked:
                    del self._unread[execution]
                found = await self.archive.endings(asked)
                for execution in asked:
                    self._tell(execution, found.get(execution))
        except OperatorError as error:
            logger.warning("cannot read how executions ended (%s); looking again soon", error)
        finally:
            self._reading = None

    async def _watch_others(self) -> None:
        pause = FIRST_GLANCE
        try:
            while self._waiters:
                await asyncio.sleep(pause)
                pause = min(pause * 2, GLANCE)
                self.waiting()
                try:
                    states = await self.archive.states(self._next_asked())
                except OperatorError as error:
                    logger.warning("cannot look for ended executions (%s); trying again", error)
                    continue
                for execution, state in states.items():
                    if state in ENDED:
                        self.notice(execution, None)
        finally:
            self._watch = None

    def _next_asked(self) -> list[str]:
        """They go to the end of the line."""
        share = min(len(self._waiters) // TURNS, MOST_ASKED)
        asked = list(islice(self._waiters, max(share, ASKED_AT_ONCE)))
        for execution in asked:
            self._waiters[execution] = self._waiters.pop(execution)
        return asked


def ending_in(transition: Transition) -> Ending | None:
    """The ending that a transition carries: whether it was applied is for the ledger to say."""
    for effect in transition.effects:
        finish = effect.finish if type(effect) is EndIfLast else effect
        if type(finish) is FinishExecution:
            return Ending(finish.state, finish.output, finish.error)
    return None


def _nothing(execution: str) -> NotFound:
    return NotFound(f"there is no execution {execution} in this store")
