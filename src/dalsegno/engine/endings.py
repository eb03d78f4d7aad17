"""Waiting for executions to end: told at once by this process's own commits, noticed soon otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice
from typing import Literal, TypeVar

from dalsegno.engine.background import end, in_background, is_under_way
from dalsegno.engine.ending_reader import Answer, EndingReader, nothing
from dalsegno.engine.outage import Outage
from dalsegno.errors import OperatorError, StoreLost, UsageError
from dalsegno.model.effect import EndIfLast, FinishExecution, RequestCancel
from dalsegno.model.execution import ENDED, Ending, ExecutionView
from dalsegno.model.transition import Transition
from dalsegno.ports.archive import Archive

logger = logging.getLogger("dalsegno.endings")

REMEMBERED = 10_000
FIRST_LOOK = 1.0
"""Seconds that even the most impatient caller gives the store to say whether it has ended."""
FIRST_GLANCE = 0.01
"""It may have ended long before anybody waited."""
GLANCE = 0.25
"""Another process may end an execution. While anybody waits, one query this often asks about some of them."""
LONGEST_PAUSE = 2.0
"""The same while the store does not answer."""
PAUSES_PER_LOOK, LONGEST_REST = 4, 0.05
"""While other processes commit without end, looks take at most a fifth of the time; but on a busy machine a look takes
long because it waits itself, and so many seconds after it the next one may come."""
ASKED_AT_ONCE, TURNS, MOST_ASKED = 250, 8, 2_000
"""So many at least, the others come next, in so many turns. However many wait, a look costs no more than a bit."""

T = TypeVar("T")


class _Waiter:
    __slots__ = ("future", "wants_ending")

    def __init__(self, *, wants_ending: bool = True) -> None:
        self.future: asyncio.Future[Ending | None] = asyncio.get_running_loop().create_future()
        self.wants_ending = wants_ending


class Endings:
    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.outage = Outage()
        self.waiting: Callable[[], None] = lambda: None
        """Called while somebody waits, so that other processes tell what they end."""
        self._waiters: dict[str, list[_Waiter]] = {}
        self._watch: asyncio.Task[None] | None = None
        self._reader = EndingReader(archive, self._waiters.__contains__, self._tell)
        self._running: OrderedDict[str, None] = OrderedDict()
        """Started here and not known to have ended: whoever waits for one of these need not look first."""
        self._changed = asyncio.Event()
        self._closed = False

    def started(self, execution: str) -> None:
        self._running[execution] = None
        if len(self._running) > REMEMBERED:
            self._running.popitem(last=False)

    def notice(self, execution: str, ending: Ending | None) -> None:
        """It has ended; ``ending`` is given by the process whose commit ended it."""
        self._running.pop(execution, None)
        if ending is None:
            self._tell_over(execution)
            self._reader.ask(execution)
        else:
            self._tell(execution, ending)

    def notice_elsewhere(self, execution: str) -> None:
        """Another process says that it has ended."""
        self.notice(execution, None)

    def look_soon(self) -> None:
        """Another process has committed something."""
        self._changed.set()

    async def wait(self, execution: str, timeout: float | None = None) -> ExecutionView:  # noqa: ASYNC109 - as users know it
        """The ended execution; raises TimeoutError if it has not ended by then."""
        await self.ending(execution, timeout)
        return await self._view(execution)

    async def ending(self, execution: str, timeout: float | None = None) -> Ending:  # noqa: ASYNC109 - as users know it
        """How it ended; raises TimeoutError if it has not ended by then."""

        async def look() -> Ending | None:
            return (await self._view(execution)).ending

        found = await self._told(execution, _Waiter(), look, timeout)
        assert found is not None  # noqa: S101 - one that wants the ending is told it
        return found

    async def over(self, execution: str) -> None:
        """Returns when it has ended, or is gone. Its result, which may be large, is not read for that."""

        async def look() -> Literal[True] | None:
            state = (await self.archive.states([execution])).get(execution)
            return True if state is None or state in ENDED else None

        await self._told(execution, _Waiter(wants_ending=False), look, None)

    async def _told(
        self,
        execution: str,
        waiter: _Waiter,
        look: Callable[[], Awaitable[T | None]],
        seconds: float | None,
    ) -> T | Ending | None:
        if self._closed:
            raise _stopped()
        self._waiters.setdefault(execution, []).append(waiter)
        self.waiting()
        try:
            until = _clock() + seconds if seconds is not None else None
            if execution not in self._running:
                async with asyncio.timeout(max(seconds, FIRST_LOOK) if seconds is not None else None):
                    found = await look()
                if found is not None:
                    return found
            if not is_under_way(self._watch):
                self._watch = in_background(self._watch_others())
            async with asyncio.timeout_at(until):
                return await waiter.future
        finally:
            self._forget(execution, waiter)

    @asynccontextmanager
    async def watch(self, executions: Iterable[str]) -> AsyncIterator[EndingWatch]:
        """Waits for many together: one query tells which of them have ended already or do not exist."""
        if self._closed:
            raise _stopped()
        watch = EndingWatch()
        waiters = {execution: watch.waiter(execution) for execution in executions}
        for execution, waiter in waiters.items():
            self._waiters.setdefault(execution, []).append(waiter)
        self.waiting()
        try:
            await self._tell_ended({each: own for each, own in waiters.items() if each not in self._running})
            if not is_under_way(self._watch):
                self._watch = in_background(self._watch_others())
            yield watch
        finally:
            for execution, waiter in waiters.items():
                self._forget(execution, waiter)

    async def _tell_ended(self, waiters: Mapping[str, _Waiter]) -> None:
        """Tells these waiters alone what has ended and what does not exist."""
        asked = [execution for execution, waiter in waiters.items() if not waiter.future.done()]
        for first in range(0, len(asked), MOST_ASKED):
            chunk = asked[first : first + MOST_ASKED]
            states = await self.archive.states(chunk)
            for execution in chunk:
                future, state = waiters[execution].future, states.get(execution)
                if future.done():
                    continue
                if state is None:
                    future.set_exception(nothing(execution))
                elif state in ENDED:
                    future.set_result(None)
        await asyncio.sleep(0)  # the watch has noted them then

    async def close(self) -> None:
        """Whoever still waits is told that nobody will tell him here."""
        self._closed = True
        await end(self._watch)
        await self._reader.close()
        for execution in list(self._waiters):
            self._tell(execution, _stopped())

    def lose(self, error: StoreLost) -> None:
        """Nobody will learn of an ending any more."""
        for execution in list(self._waiters):
            self._tell(execution, error)

    def _forget(self, execution: str, waiter: _Waiter) -> None:
        if waiter.future.done() and not waiter.future.cancelled():
            waiter.future.exception()  # so that nobody complains that it was not looked at
        waiters = self._waiters.get(execution)
        if waiters is not None:
            waiters[:] = [other for other in waiters if other is not waiter]
            if not waiters:
                del self._waiters[execution]

    async def _view(self, execution: str) -> ExecutionView:
        view = await self.archive.execution(execution)
        if view is None:
            raise nothing(execution)
        return view

    def _tell(self, execution: str, answer: Answer) -> None:
        for waiter in self._waiters.pop(execution, ()):
            if waiter.future.done():
                continue
            if isinstance(answer, Ending):
                waiter.future.set_result(answer if waiter.wants_ending else None)
            else:
                waiter.future.set_exception(answer)

    def _tell_over(self, execution: str) -> None:
        """Those who need not know how."""
        waiters = self._waiters.get(execution, [])
        for waiter in [each for each in waiters if not each.wants_ending]:
            waiters.remove(waiter)
            if not waiter.future.done():
                waiter.future.set_result(None)
        if not waiters:
            self._waiters.pop(execution, None)

    async def _watch_others(self) -> None:
        pause = FIRST_GLANCE
        try:
            while self._waiters:
                await self._rest(pause)
                self.waiting()
                began = _clock()
                pause = min(pause * 2, GLANCE if await self._could_look() else LONGEST_PAUSE)
                await asyncio.sleep(min(PAUSES_PER_LOOK * (_clock() - began), LONGEST_REST))
        finally:
            self.outage.gave_up(self)

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    async def _could_look(self) -> bool:
        try:
            await self._look(self._next_asked())
        except StoreLost as error:
            self.lose(error)
            return False
        except OperatorError as error:
            self.outage.failed(self, "whoever waits for an execution to end waits for the store", error)
            return False
        except Exception:
            logger.exception("cannot look for ended executions; trying again")
            return False
        self.outage.answered(self)
        return True

    async def _look(self, asked: list[str]) -> None:
        """One that is gone has ended, too."""
        states = await self.archive.states(asked)
        for execution in asked:
            if execution not in states or states[execution] in ENDED:
                self.notice(execution, None)

    def _next_asked(self) -> list[str]:
        """They go to the end of the line."""
        share = min(len(self._waiters) // TURNS, MOST_ASKED)
        asked = list(islice(self._waiters, max(share, ASKED_AT_ONCE)))
        for execution in asked:
            self._waiters[execution] = self._waiters.pop(execution)
        return asked


class EndingWatch:
    """Executions that one caller waits for together: which of them have ended, not how."""

    def __init__(self) -> None:
        self._told: dict[str, Exception | None] = {}
        self._changed = asyncio.Event()

    def waiter(self, execution: str) -> _Waiter:
        made = _Waiter(wants_ending=False)
        made.future.add_done_callback(partial(self._note, execution))
        return made

    def _note(self, execution: str, waiter: asyncio.Future[Ending | None]) -> None:
        if not waiter.cancelled():
            error = waiter.exception()
            self._told[execution] = error if isinstance(error, Exception) else None
            self._changed.set()

    async def next(self, timeout: float) -> dict[str, Exception | None]:  # noqa: ASYNC109 - as users know it
        """Those that ended since the last call, each with what makes waiting for it futile, if something does. Empty if
        there are none in that time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        self._changed.clear()
        told, self._told = self._told, {}
        return told


def ending_in(transition: Transition) -> Ending | None:
    """The ending that a transition carries: whether it was applied is for the ledger to say."""
    for effect in transition.effects:
        finish = effect.finish if isinstance(effect, EndIfLast | RequestCancel) else effect
        if type(finish) is FinishExecution:
            return Ending(finish.state, finish.output, finish.error)
    return None


def _clock() -> float:
    return asyncio.get_running_loop().time()


def _stopped() -> UsageError:
    return UsageError("the application was stopped while this call was waiting")
