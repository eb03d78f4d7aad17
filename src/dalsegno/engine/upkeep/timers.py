"""Timers, driven by events. The loop sleeps until the next due time it knows; only an earlier due time wakes it.

It also polls at intervals, in case a notification was lost. Among processes that notify each other, one process's
poll serves them all.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from dalsegno.engine.committer import Outage, Pause
from dalsegno.errors import OperatorError
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.stack import TIMER_INTERVAL

LONGEST_SLEEP = 5.0
"""Seconds after which a due time is found that another process has stored without firing or announcing it, because it
died.
"""
BATCH = 500
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 2.0
"""Seconds between two attempts to reach the store. Kept short, so that overdue timers fire soon after an outage."""
LONGEST_RETRY = 0.064
"""Longest pause, in seconds, between two attempts at a due token that another process has locked."""


class Timers:
    def __init__(self, ledger: Ledger, broker: Broker, interval: float = TIMER_INTERVAL) -> None:
        self.ledger = ledger
        self.broker = broker
        self.interval = interval
        self.longest_sleep: Callable[[], float] = lambda: LONGEST_SLEEP
        self.outage = Outage()
        self._pause = Pause(FIRST_PAUSE, LONGEST_PAUSE)
        self.fired = 0
        self.looked_at: float | None = None
        """Time at which this loop last fired everything due, or learned that another process did."""
        self._sooner = asyncio.Event()
        self._next: float | None = None
        self._empty_looks = 0
        """Consecutive polls that found something due and could fire nothing."""
        self._elsewhere = -math.inf
        """Time of the last poll of another process, by the loop's clock."""

    def lag(self) -> float:
        """Return the seconds by which the next timer is overdue."""
        return max(self.ledger.now() - self._next, 0.0) if self._next is not None else 0.0

    def notice(self, due: float) -> None:
        """Note the due time of a parked token. The sleep ends early if it is due before all known ones."""
        if self._next is None or due < self._next:
            self._next = due
            self._sooner.set()

    def look(self) -> None:
        """Poll now, for this process and its neighbours."""
        self._sooner.set()

    def notice_look(self) -> None:
        """Note that another process has just fired everything due and fires what it has read ahead, so that a poll
        here can wait.
        """
        self._elsewhere = asyncio.get_running_loop().time()

    async def run(self) -> None:
        while True:
            reached = await self._try_to_drain()
            await asyncio.sleep(self.interval)
            # Due times noted during the pause count too: from here to the wait nothing else runs.
            self._sooner.clear()
            pause = max(self._until_next(), self._retry_pause()) if reached else self._pause.next()
            if pause > 0:
                await self._sleep(pause)

    async def _sleep(self, seconds: float) -> None:
        """Sleep for at most ``seconds``, and no longer than the largest interval between polls of any process."""
        clock = asyncio.get_running_loop().time
        began = clock()
        while (until := min(began + seconds, self._look_again_at(began))) > clock():
            try:
                async with asyncio.timeout_at(until):
                    await self._sooner.wait()
                    return
            except TimeoutError:
                if self._elsewhere > began:
                    self.looked_at = self.ledger.now() - (clock() - self._elsewhere)

    def _look_again_at(self, began: float) -> float:
        return max(began, self._elsewhere) + self.longest_sleep()

    async def _try_to_drain(self) -> bool:
        try:
            await self._drain()
        except OperatorError as error:
            self.outage.failed(self, "timers wait for the store", error)
            return False
        self.outage.answered(self)
        self._pause.reset()
        self.looked_at = self.ledger.now()
        return True

    async def _drain(self) -> None:
        """Fire everything that is due and note the next due time."""
        before = self.fired
        while True:
            self._next = None
            woken = await self.ledger.wake(BATCH)
            fired = len(woken.ready) + woken.handed
            self.fired += fired
            if woken.ready:
                await self.broker.announce(woken.ready)
            if fired < BATCH:
                break
        due = woken.next_due
        is_held = self.fired == before and due is not None and due <= self.ledger.now()
        self._empty_looks = self._empty_looks + 1 if is_held else 0
        if due is not None:
            self.notice(due)

    def _retry_pause(self) -> float:
        """Return the pause before a locked token is tried again. The lock is usually short, so the first retry is
        immediate.
        """
        return (
            min(TIMER_INTERVAL * 2 ** (self._empty_looks - 2), LONGEST_RETRY)
            if self._empty_looks > 1
            else 0.0
        )

    def _until_next(self) -> float:
        return self._next - self.ledger.now() if self._next is not None else math.inf
