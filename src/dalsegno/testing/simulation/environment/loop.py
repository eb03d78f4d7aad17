"""An event loop and a clock under virtual time: no sleeping, threads or I/O, and an order drawn from a seed.

* Every handle belongs to the simulated process in whose context it was scheduled.
* Killing a process sets a flag. Its handles are dropped when their turn comes, so its coroutines stop at their
  current await and never clean up, as after ``kill -9``.
* The simulated clock is virtual time plus the jumps applied to it.
* What measures how long its own work takes sees virtual time, too, in which each look at the clock takes a
  microsecond: the same seed gives the same run on a machine that stalls.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, TypeVar

from dalsegno.engine import committer
from dalsegno.engine.scripts import turns
from dalsegno.engine.steps import budget, values
from dalsegno.engine.worker import heartbeat
from dalsegno.errors import DalSegnoError
from dalsegno.nodes.data import lists
from dalsegno.testing.clock import MIDNIGHT

_T = TypeVar("_T")


STOPWATCHES = (
    (committer, "perf_counter"),
    (turns, "monotonic"),
    (budget, "monotonic"),
    (values, "monotonic"),
    (heartbeat, "monotonic"),
    (lists, "monotonic"),
)
"""Clocks with which the engine and the nodes measure their own work."""
LOOK = 1e-6


class ProcessRun:
    """One run of a simulated process, and whether it has ended."""

    __slots__ = ("dead", "name", "on_death")

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.on_death: Callable[[], None] = lambda: None
        """Called when it is killed from inside."""

    def die(self) -> None:
        self.dead = True
        self.on_death()


OWNER: contextvars.ContextVar[ProcessRun | None] = contextvars.ContextVar("owner", default=None)


class Exhausted(DalSegnoError):
    """The simulation exceeded its limit of steps or virtual time."""

    code = "DS-990"


class _Entry:
    """A call and its owner."""

    __slots__ = ("arguments", "call", "context", "handle", "owner")

    def __init__(
        self,
        handle: asyncio.Handle,
        context: contextvars.Context,
        call: Callable[..., object],
        arguments: tuple[Any, ...],
    ) -> None:
        self.handle = handle
        self.context = context
        self.call = call
        self.arguments = arguments
        self.owner = context.get(OWNER)

    @property
    def void(self) -> bool:
        return self.handle.cancelled() or (self.owner is not None and self.owner.dead)


class VirtualLoop(asyncio.AbstractEventLoop):
    """Runs ready callbacks in an order drawn from ``order`` (None: first come, first served), then jumps to the next
    timer.

    ``before_step`` is called with the number of every step, to inject faults between any two awaits.
    """

    def __init__(self, order: Random | None, max_steps: int, max_time: float) -> None:
        self.steps = 0
        self.problems: list[dict[str, Any]] = []
        self.before_step: Callable[[int], None] = lambda step: None
        self._order = order
        self._max_steps = max_steps
        self._max_time = max_time
        self._now = 0.0
        self._ready: list[_Entry] = []
        self._timers: list[tuple[float, int, _Entry]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._ticket = itertools.count()
        self._running = False
        self._closed = False

    # -- what asyncio asks of a loop ----------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        context = context if context is not None else contextvars.copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(_Entry(handle, context, callback, args))
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        context = context if context is not None else contextvars.copy_context()
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._ticket), _Entry(handle, context, callback, args)))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are dropped when they come due."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, _T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[_T]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Close the remaining coroutines.

        All tasks were kept alive until now, so that no collector ran a dead task's clean-up.
        """
        self._closed = True
        for task in self._tasks:
            coroutine = task.get_coro()
            if not task.done() and coroutine is not None:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - as asyncio.gather
                coroutine.close()
        self._tasks.clear()
        self._ready.clear()
        self._timers.clear()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Record the error, to be judged after the run: a task that failed unnoticed is a finding."""
        if not self._closed:
            self.problems.append(context)

    # -- running ------------------------------------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, _T]) -> _T:
        """Run until ``main`` is done. This works inside a running loop, because nothing here blocks."""
        outer = asyncio._get_running_loop()  # noqa: SLF001 - made for those who write loops
        _set_running_loop(self)
        self._running = True
        try:
            looks = itertools.count()
            with _stopwatches(lambda: self._now + next(looks) * LOOK):
                task = self.create_task(main)
                while not task.done():
                    self._step()
                return task.result()
        finally:
            self._running = False
            _set_running_loop(outer)

    def _step(self) -> None:
        if not self._ready:
            self._jump()
        ready = self._ready
        index = self._order.randrange(len(ready)) if self._order is not None and len(ready) > 1 else 0
        entry = ready.pop(index)
        if entry.void:
            return
        self.steps += 1
        if self.steps > self._max_steps:
            raise Exhausted(f"more than {self._max_steps} steps at virtual second {self._now:.1f}")
        self.before_step(self.steps)
        if not entry.void:
            self._call(entry)

    def _call(self, entry: _Entry) -> None:
        try:
            entry.context.run(entry.call, *entry.arguments)
        except Exception as error:  # noqa: BLE001 - as every loop: reported, and on it goes
            self.call_exception_handler({"message": f"{entry.call} broke", "exception": error})

    def _jump(self) -> None:
        """Jump to the earliest timer, because nothing is ready."""
        while self._timers:
            when, _, entry = heapq.heappop(self._timers)
            if entry.void:
                continue
            self._now = max(self._now, when)
            if self._now > self._max_time:
                raise Exhausted(f"not done after {self._max_time:g} virtual seconds")
            self._ready.append(entry)
            while self._timers and self._timers[0][0] <= self._now:
                self._ready.append(heapq.heappop(self._timers)[2])
            return
        raise Exhausted(f"nothing is left to run at virtual second {self._now:.1f}")


@contextmanager
def _stopwatches(clock: Callable[[], float]) -> Iterator[None]:
    before = [(module, name, getattr(module, name)) for module, name in STOPWATCHES]
    try:
        for module, name in STOPWATCHES:
            setattr(module, name, clock)
        yield
    finally:
        for module, name, real in before:
            setattr(module, name, real)


def virtual_loop(order: Random | None, max_steps: int, max_time: float) -> VirtualLoop:
    # The missing methods are those for sockets, pipes, signals and threads.
    return VirtualLoop(order, max_steps, max_time)  # type: ignore[abstract]


def _set_running_loop(loop: asyncio.AbstractEventLoop | None) -> None:
    asyncio._set_running_loop(None)  # noqa: SLF001 - made for those who write loops
    asyncio._set_running_loop(loop)  # noqa: SLF001 - the same


class SimulatedClock:
    """Implements the Clock port: every component of one simulated system shares it (C1)."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._offset = MIDNIGHT

    def now(self) -> float:
        return self._loop.time() + self._offset

    def jump(self, seconds: float) -> None:
        """Jump forwards or backwards. Timers of the loop do not notice, as with a machine's monotonic clock."""
        self._offset += seconds
