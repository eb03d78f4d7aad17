"""Timers: event-driven. The loop sleeps until the next due time it knows, and only something due sooner wakes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from dalsegno.errors import OperatorError
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger

logger = logging.getLogger("dalsegno.timers")

LONGEST_SLEEP = 5.0
"""Another process may have parked something and died before it fired: that is noticed after this time."""
BATCH = 500
OUT_OF_REACH = 1.0
BREATH = 0.004
"""Between two looks, so that timers due in a burst are fired together and not one by one."""


class Timers:
    def __init__(self, ledger: Ledger, broker: Broker) -> None:
        self.ledger = ledger
        self.broker = broker
        self.longest_sleep: Callable[[], float] = lambda: LONGEST_SLEEP
        self.fired = 0
        self.looked_at: float | None = None
        """When everything that was due had been fired last."""
        self._sooner = asyncio.Event()
        self._next: float | None = None

    def lag(self) -> float:
        """Seconds by which the next timer is overdue."""
        return max(self.ledger.now() - self._next, 0.0) if self._next is not None else 0.0

    def notice(self, due: float) -> None:
        """Something was parked; if it comes due before everything known, the sleep is cut short."""
        if self._next is None or due < self._next:
            self._next = due
            self._sooner.set()

    async def run(self) -> None:
        while True:
            reached = await self._try_to_drain()
            await asyncio.sleep(BREATH)
            # What was noticed during the breath counts too: from here to the wait nothing else runs.
            self._sooner.clear()
            pause = self._noticed() - self.ledger.now() if reached else OUT_OF_REACH
            if pause > 0:
                await self._rest(min(pause, self.longest_sleep()))

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._sooner.wait()
        except TimeoutError:
            return

    async def _try_to_drain(self) -> bool:
        try:
            await self._drain()
        except OperatorError as error:
            logger.warning("timers cannot reach the store (%s); trying again", error)
            return False
        self.looked_at = self.ledger.now()
        return True

    async def _drain(self) -> None:
        """Fires everything that is due, and notes when the next will be."""
        while True:
            self._next = None
            woken = await self.ledger.wake(BATCH)
            self.fired += len(woken.ready)
            if woken.ready:
                await self.broker.announce(woken.ready)
            if len(woken.ready) < BATCH:
                break
        if woken.next_due is not None:
            self._next = min(woken.next_due, self._noticed())

    def _noticed(self) -> float:
        return self._next if self._next is not None else self.ledger.now() + self.longest_sleep()
