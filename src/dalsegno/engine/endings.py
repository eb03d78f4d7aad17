"""Waiting for executions to end: told at once by this process's own commits, noticed soon otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice

from msgspec import Struct

from dalsegno.errors import InternalError, NotFound, OperatorError
from dalsegno.model.effect import EndIfLast, FinishExecution
from dalsegno.model.execution import ENDED, EndState, ExecutionView
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


class Ending(Struct, frozen=True, gc=False):
    """How an execution ended, as far as its result is concerned. ``output`` and ``error`` are JSON."""

    state: EndState
    output: bytes | None
    error: bytes | None


class Endings:
    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.waiting: Callable[[], None] = lambda: None
        """Called while somebody waits, so that other processes tell what they end."""
        self._waiters: dict[str, list[asyncio.Future[Ending | None]]] = {}
        self._watch: asyncio.Task[None] | None = None
        self._running: OrderedDict[str, None] = OrderedDict()
        """Started here and not known to have ended: whoever waits for one of these need not look first."""

    def started(self, execution: str) -> None:
        self._running[execution] = None
        if len(self._running) > REMEMBERED:
            self._running.popitem(last=False)

    def notice(self, execution: str, ending: Ending | None) -> None:
        """It has ended; ``ending`` is given by the process whose commit ended it."""
        self._running.pop(execution, None)
        for waiter in self._waiters.pop(execution, ()):
            if not waiter.done():
                waiter.set_result(ending)

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
                view = await self._view(execution)
                if view.state in ENDED:
                    return _ending_of(view)
            if self._watch is None:
                self._watch = asyncio.create_task(self._watch_others())
            async with asyncio.timeout(timeout):
                known = await waiter
            return known if known is not None else _ending_of(await self._view(execution))
        finally:
            self._forget(execution, waiter)

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch

    def _forget(self, execution: str, waiter: asyncio.Future[Ending | None]) -> None:
        waiters = self._waiters.get(execution)
        if waiters is not None:
            waiters[:] = [other for other in waiters if other is not waiter]
            if not waiters:
                del self._waiters[execution]

    async def _view(self, execution: str) -> ExecutionView:
        view = await self.archive.execution(execution)
        if view is None:
            raise NotFound(f"there is no execution {execution} in this store")
        return view

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


def _ending_of(view: ExecutionView) -> Ending:
    match view.state:
        case "COMPLETED" | "FAILED" | "CANCELLED" as state:
            return Ending(state, view.output, view.error)
        case _:
            raise InternalError(f"execution {view.id} was said to have ended, but is {view.state}")
