"""Waiting for executions to end. Endings committed by this process are reported at once, others soon.

An ending that is only known to have happened is read from the store, together with all others requested meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from asyncio import Task
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice
from typing import Literal, TypeAlias, TypeVar

from dalsegno.engine.committer import Outage
from dalsegno.engine.definitions import GroupedReads
from dalsegno.engine.process import end, in_background, is_under_way
from dalsegno.errors import NotFound, OperatorError, StoreLost, Unavailable, UsageError
from dalsegno.model.effect import EndIfLast, FinishExecution, RequestCancel
from dalsegno.model.execution import ENDED, Ending, ExecutionState, ExecutionView
from dalsegno.model.transition import Transition
from dalsegno.ports.archive import Archive

logger = logging.getLogger("dalsegno.endings")

READ_AT_ONCE = 50
"""Small, because results may be large."""

Answer: TypeAlias = Ending | Exception
"""The ending of an execution, or the error that its waiters raise."""


class EndingReader:
    def __init__(
        self, archive: Archive, is_awaited: Callable[[str], bool], tell: Callable[[str, Answer], None]
    ) -> None:
        self.archive = archive
        self._is_awaited = is_awaited
        self._tell = tell
        self._unread: dict[str, None] = {}
        self._reading: Task[None] | None = None

    def ask(self, execution: str) -> None:
        """Request the ending of an execution. It is reported soon, unless the store is out of reach or the execution
        has not ended: then its waiters poll again.
        """
        if self._is_awaited(execution):
            self._unread[execution] = None
            if not is_under_way(self._reading):
                self._reading = in_background(self._read_all())

    async def close(self) -> None:
        await end(self._reading)

    async def _read_all(self) -> None:
        while self._unread:
            asked = list(islice(self._unread, READ_AT_ONCE))
            for execution in asked:
                del self._unread[execution]
            await self._read([execution for execution in asked if self._is_awaited(execution)])

    async def _read(self, asked: Sequence[str]) -> None:
        """Read endings. An error is reported only to the waiters of the execution that causes it."""
        try:
            answers = await self._answers(asked)
        except Unavailable as error:
            logger.debug(
                "cannot read the endings of executions (%s); the callers that wait poll again", error
            )
        except Exception as error:  # noqa: BLE001 - the waiting callers raise it
            if len(asked) == 1:
                self._tell(asked[0], error)
            else:
                middle = len(asked) // 2
                await self._read(asked[:middle])
                await self._read(asked[middle:])
        else:
            for execution, answer in answers.items():
                self._tell(execution, answer)

    async def _answers(self, asked: Sequence[str]) -> dict[str, Answer]:
        answers: dict[str, Answer] = dict(await self.archive.endings(asked)) if asked else {}
        if missing := [execution for execution in asked if execution not in answers]:
            known = await self.archive.states(missing)
            answers |= {execution: not_found(execution) for execution in missing if execution not in known}
        return answers


def not_found(execution: str) -> NotFound:
    return NotFound(f"there is no execution {execution} in this store")


REMEMBERED = 10_000
FIRST_LOOK = 1.0
"""Seconds that the store has at least to answer whether an execution has ended, however short the caller's
timeout.
"""
FIRST_POLL = 0.01
"""First polling interval, in seconds: the execution may have ended long before the wait."""
LONGEST_POLL = 0.25
"""Longest polling interval, in seconds, while there are waiters: another process may end an execution. One query asks
about some of them.
"""
JUST_STARTED = LONGEST_POLL
"""Seconds after a start during which a wait begins without a query: no longer than until the next poll."""
LONGEST_PAUSE = 2.0
"""Longest polling interval, in seconds, during an outage."""
PAUSES_PER_LOOK, LONGEST_REST = 4, 0.05
"""While other processes commit without pause, polling takes at most a fifth of the time. On a busy machine a poll
takes long because it waits itself, so the rest is bounded by this many seconds.
"""
ASKED_AT_ONCE, TURNS, MOST_ASKED = 250, 8, 2_000
"""Executions per poll: at least ``ASKED_AT_ONCE``, at most ``MOST_ASKED``; all of them within ``TURNS`` polls where
that bound permits. The cost of a poll stays bounded however many executions are waited for.
"""

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
        """Called while there are waiters, so that other processes announce endings."""
        self._waiters: dict[str, list[_Waiter]] = {}
        self._watch: asyncio.Task[None] | None = None
        self._reader = EndingReader(archive, self._waiters.__contains__, self._tell)
        self._running: OrderedDict[str, float] = OrderedDict()
        """Executions started here, with their start time, that are not known to have ended: a wait right after the
        start needs no query.
        """
        self._states = GroupedReads(self._look_at, MOST_ASKED)
        self._changed = asyncio.Event()
        self._closed = False

    def started(self, execution: str) -> None:
        self._running[execution] = _clock()
        if len(self._running) > REMEMBERED:
            self._running.popitem(last=False)

    def notice(self, execution: str, ending: Ending | None) -> None:
        """Note an ending; ``ending`` is given by the process whose commit ended the execution."""
        self._running.pop(execution, None)
        if ending is None:
            self._tell_over(execution)
            self._reader.ask(execution)
        else:
            self._tell(execution, ending)

    def notice_elsewhere(self, execution: str) -> None:
        """Note an ending that another process has announced."""
        self.notice(execution, None)

    def poll_soon(self) -> None:
        """Poll soon: another process has committed something."""
        self._changed.set()

    async def wait(self, execution: str, timeout: float | None = None) -> ExecutionView:  # noqa: ASYNC109 - as users know it
        """Return the ended execution. Raises TimeoutError if it has not ended in time."""
        await self.ending(execution, timeout)
        return await self._view(execution)

    async def ending(self, execution: str, timeout: float | None = None) -> Ending:  # noqa: ASYNC109 - as users know it
        """Return the ending. Raises TimeoutError if the execution has not ended in time."""

        async def look() -> Ending | None:
            if execution in self._running:  # many may have been started together, and most still run
                state = await self._states.of(execution)
                if state is not None and state not in ENDED:
                    return None
            return (await self._view(execution)).ending

        found = await self._told(execution, _Waiter(), look, timeout)
        assert found is not None  # noqa: S101 - a waiter that needs the ending gets it
        return found

    async def over(self, execution: str) -> None:
        """Return when the execution has ended or was removed, without reading its result, which may be large."""

        async def look() -> Literal[True] | None:
            state = await self._states.of(execution)
            return True if state is None or state in ENDED else None

        await self._told(execution, _Waiter(wants_ending=False), look, None)

    async def no_answer(self, execution: str) -> None:
        """Return when the execution has ended or was removed: it answers no more requests."""
        await self.over(execution)

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
            if not self._has_just_started(execution):
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
        """Wait for many executions together: one query finds those that have ended already or do not exist."""
        if self._closed:
            raise _stopped()
        watch = EndingWatch()
        waiters = {execution: watch.waiter(execution) for execution in executions}
        for execution, waiter in waiters.items():
            self._waiters.setdefault(execution, []).append(waiter)
        self.waiting()
        try:
            await self._tell_ended(
                {each: own for each, own in waiters.items() if not self._has_just_started(each)}
            )
            if not is_under_way(self._watch):
                self._watch = in_background(self._watch_others())
            yield watch
        finally:
            for execution, waiter in waiters.items():
                self._forget(execution, waiter)

    async def _tell_ended(self, waiters: Mapping[str, _Waiter]) -> None:
        """Report to these waiters only which executions have ended and which do not exist."""
        asked = [execution for execution, waiter in waiters.items() if not waiter.future.done()]
        for first in range(0, len(asked), MOST_ASKED):
            chunk = asked[first : first + MOST_ASKED]
            states = await self.archive.states(chunk)
            for execution in chunk:
                future, state = waiters[execution].future, states.get(execution)
                if future.done():
                    continue
                if state is None:
                    future.set_exception(not_found(execution))
                elif state in ENDED:
                    future.set_result(None)
        await asyncio.sleep(0)  # lets the watch note them

    def _has_just_started(self, execution: str) -> bool:
        """Return True shortly after a start; later, another process may have ended the execution unannounced."""
        begun = self._running.get(execution)
        return begun is not None and _clock() < begun + JUST_STARTED

    async def close(self) -> None:
        """Stop, and fail all waits with an error."""
        self._closed = True
        await end(self._watch)
        await self._reader.close()
        for execution in list(self._waiters):
            self._tell(execution, _stopped())

    def lose(self, error: StoreLost) -> None:
        """Fail all waits: endings can no longer be observed."""
        for execution in list(self._waiters):
            self._tell(execution, error)

    def _forget(self, execution: str, waiter: _Waiter) -> None:
        if waiter.future.done() and not waiter.future.cancelled():
            waiter.future.exception()  # retrieve the exception so that asyncio does not log it
        waiters = self._waiters.get(execution)
        if waiters is not None:
            waiters[:] = [other for other in waiters if other is not waiter]
            if not waiters:
                del self._waiters[execution]

    async def _look_at(self, executions: Sequence[str]) -> Mapping[str, ExecutionState]:
        return await self.archive.states(executions)

    async def _view(self, execution: str) -> ExecutionView:
        view = await self.archive.execution(execution)
        if view is None:
            raise not_found(execution)
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
        """Release the waiters that do not need the ending itself."""
        waiters = self._waiters.get(execution, [])
        for waiter in [each for each in waiters if not each.wants_ending]:
            waiters.remove(waiter)
            if not waiter.future.done():
                waiter.future.set_result(None)
        if not waiters:
            self._waiters.pop(execution, None)

    async def _watch_others(self) -> None:
        pause = FIRST_POLL
        try:
            while self._waiters:
                await self._sleep(pause)
                self.waiting()
                began = _clock()
                pause = min(pause * 2, LONGEST_POLL if await self._poll() else LONGEST_PAUSE)
                await asyncio.sleep(min(PAUSES_PER_LOOK * (_clock() - began), LONGEST_REST))
        finally:
            self.outage.gave_up(self)

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    async def _poll(self) -> bool:
        try:
            await self._look(self._next_asked())
        except StoreLost as error:
            self.lose(error)
            return False
        except OperatorError as error:
            self.outage.failed(self, "the wait for executions to end waits for the store", error)
            return False
        except Exception:
            logger.exception("cannot check for ended executions; trying again")
            return False
        self.outage.answered(self)
        return True

    async def _look(self, asked: list[str]) -> None:
        """Poll these executions. A removed one has ended, too."""
        states = await self.archive.states(asked)
        for execution in asked:
            if execution not in states or states[execution] in ENDED:
                self.notice(execution, None)

    def _next_asked(self) -> list[str]:
        """Return the next executions to poll and move them to the end of the queue."""
        share = min(len(self._waiters) // TURNS, MOST_ASKED)
        asked = list(islice(self._waiters, max(share, ASKED_AT_ONCE)))
        for execution in asked:
            self._waiters[execution] = self._waiters.pop(execution)
        return asked


class EndingWatch:
    """Executions that one caller waits for together: which of them have ended, without their endings."""

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
        """Return the executions that ended since the last call, each with the error that makes waiting futile, if
        any. Empty after the timeout.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        self._changed.clear()
        told, self._told = self._told, {}
        return told


def ending_in(transition: Transition) -> Ending | None:
    """Return the ending that a transition carries; the ledger decides whether it is applied."""
    for effect in transition.effects:
        finish = effect.finish if isinstance(effect, EndIfLast | RequestCancel) else effect
        if type(finish) is FinishExecution:
            return Ending(finish.state, finish.output, finish.error)
    return None


def _clock() -> float:
    return asyncio.get_running_loop().time()


def _stopped() -> UsageError:
    return UsageError("the application was stopped while this call was waiting")
