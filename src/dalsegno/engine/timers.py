"""Timers: event-driven. The loop sleeps until the next due time it knows, and only something due sooner wakes it."""

from __future__ import annotations

import asyncio
import logging

from dalsegno.errors import OperatorError
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger

logger = logging.getLogger("dalsegno.timers")

LONGEST_SLEEP = 5.0
"""Another process may have parked something and died before it fired: that is noticed after this time."""
BATCH = 500


class Timers:
    def __init__(self, ledger: Ledger, broker: Broker) -> None:
        self.ledger = ledger
        self.broker = broker
        self.fired = 0
        self._sooner = asyncio.Event()
        self._next: float | None = None

    def notice(self, due: float) -> None:
        """Something was parked; if it comes due before everything known, the sleep is cut short."""
        if self._next is None or due < self._next:
            self._next = due
            self._sooner.set()

    async def run(self) -> None:
        while True:
            try:
                pause = await self._drain()
            except OperatorError as error:
                logger.warning("timers cannot reach the store (%s); trying again", error)
                pause = 1.0
            self._sooner.clear()
            if pause > 0:
                try:
                    async with asyncio.timeout(min(pause, LONGEST_SLEEP)):
                        await self._sooner.wait()
                except TimeoutError:
                    pass

    async def _drain(self) -> float:
        """Fires everything that is due; returns the seconds until the next."""
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
        return max(self._noticed() - self.ledger.now(), 0.0)

    def _noticed(self) -> float:
        return self._next if self._next is not None else self.ledger.now() + LONGEST_SLEEP
