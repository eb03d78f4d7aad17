"""Time in tests: the clock stands still while a step runs, and skips to the next timer while the test waits."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dalsegno.lang.durations import parse_duration
from dalsegno.model.execution import ENDED
from dalsegno.testing.kit.diagnosis import Stuck
from dalsegno.testing.kit.worker_life import outside

if TYPE_CHECKING:
    from dalsegno.testing.kit.system import System

Duration = float | str | dt.timedelta

SPINS = 50
"""Polls without a pause: most steps end within microseconds."""
LONGEST_PAUSE = 0.002
MOST_SKIPS = 1000
"""Limit for a test with something that repeats forever."""


def seconds_of(duration: Duration) -> float:
    return duration.total_seconds() if isinstance(duration, dt.timedelta) else parse_duration(duration)


class SkippingClock:
    """``skips``: waiting for a result moves the clock. ``patience``: real seconds until a wait fails."""

    def __init__(self, system: System, *, skips: bool, patience: float) -> None:
        self.patience = patience
        self._system = system
        self._skips = skips
        self._waited_for: Counter[str] = Counter()
        self._timekeeper: asyncio.Task[None] | None = None

    @contextmanager
    def waiting_for(self, execution: str) -> Iterator[None]:
        self._waited_for[execution] += 1
        if self._timekeeper is None:
            loop = asyncio.get_running_loop()
            self._timekeeper = loop.create_task(self._keep_time(), context=outside())
        try:
            yield
        finally:
            self._waited_for[execution] -= 1
            if not self._waited_for[execution]:
                del self._waited_for[execution]

    def close(self) -> None:
        if self._timekeeper is not None:
            self._timekeeper.cancel()

    async def _keep_time(self) -> None:
        try:
            while self._waited_for:
                await self._until_quiet()
                if self._waited_for:
                    await self._skip()
        finally:
            self._timekeeper = None

    async def _until_quiet(self) -> None:
        looks = 0
        while self._system.is_busy() and self._waited_for:
            looks += 1
            await asyncio.sleep(_pause(looks))
        # A waiter that was just notified of an ending runs before the clock moves.
        await asyncio.sleep(0)

    async def _skip(self) -> None:
        system = self._system
        if system.is_busy():
            return
        due = system.next_due()
        if due is not None and self._skips:
            system.clock.set(max(due, system.clock.now()))
            await system.fire_timers()
        elif not await self._give_up(due):
            await asyncio.sleep(LONGEST_PAUSE)

    async def _give_up(self, due: float | None) -> bool:
        """Fail the waiters of executions that cannot continue, with the reason.

        Return False if an event happened meanwhile.
        """
        waiters = self._system.client_engine.waiters
        for execution in list(self._waited_for):
            row = self._system.store.execution(execution)
            if row is not None and row.state in ENDED:
                waiters.notice(execution, None)  # the worker that ended it died before it could notify
                continue
            reason = await self._why_stuck(execution, due)
            if self._system.is_busy():
                return False
            waiters.give_up(execution, Stuck(reason))
        await asyncio.sleep(0)
        return True

    async def _why_stuck(self, execution: str, due: float | None) -> str:
        explanation = await self._system.explainer.explain(execution)
        if due is None:
            cause = "nothing is running and no timer is left, so only a signal or the test itself can move it"
        else:
            ahead = due - self._system.clock.now()
            cause = f"time is moved by hand in this test, and the next timer is {ahead:g} s ahead: advance({ahead:g})"
        return f"{explanation}\n  it cannot continue: {cause}"

    async def timed_out(self, execution: str) -> Stuck:
        explanation = await self._system.explainer.explain(execution)
        return Stuck(
            f"{explanation}\n  it did not end within {self.patience:g} real seconds; a task that waits for something "
            "else should be mocked, or give the test more patience: TestKit(app, patience=60)"
        )

    # -- by hand --------------------------------------------------------------------------------------------------

    async def until_idle(self) -> None:
        """Wait until everything that needs no time has happened."""
        end = time.monotonic() + self.patience
        looks = 0
        while self._system.is_busy():
            if time.monotonic() > end:
                raise Stuck(await self._still_busy())
            looks += 1
            await asyncio.sleep(_pause(looks))

    async def _still_busy(self) -> str:
        worker = self._system.worker
        running = sorted({lease.execution for lease in worker.tokens()}) if worker is not None else []
        explanations = [await self._system.explainer.explain(execution) for execution in running[:3]]
        return "\n".join(
            [f"the system did not become idle within {self.patience:g} real seconds", *explanations]
        )

    async def run_out(self) -> None:
        """Run until nothing is left to happen, with a limit. Tasks that outlive an ending run to their own end."""
        await self.until_idle()
        for _ in range(MOST_SKIPS):
            due = self._system.next_due()
            if due is None:
                return
            self._system.clock.set(max(due, self._system.clock.now()))
            await self._system.fire_timers()
            await self.until_idle()

    async def advance(self, duration: Duration) -> float:
        """Move the clock; everything that becomes due on the way runs at its own time."""
        system = self._system
        await self.until_idle()
        target = system.clock.now() + seconds_of(duration)
        while (due := system.next_due()) is not None and due <= target:
            system.clock.set(max(due, system.clock.now()))
            await system.fire_timers()
            await self.until_idle()
        system.clock.set(max(target, system.clock.now()))
        return system.clock.now()


def _pause(looks: int) -> float:
    return 0.0 if looks < SPINS else min(0.0002 * (looks - SPINS + 1), LONGEST_PAUSE)
