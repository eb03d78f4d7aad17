"""Timers: event-driven. The loop sleeps until the next due time it knows, and only something due sooner wakes it.

From time to time it looks by itself, in case it was not told of something. Among processes that tell each other, the
look of one is enough for all: the others sleep on.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from dalsegno.engine.outage import Outage, Pause
from dalsegno.errors import OperatorError
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger

LONGEST_SLEEP = 5.0
"""Another process may have parked something and died before it fired: that is noticed after this time."""
BATCH = 500
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 2.0
"""Between two tries to reach the store. Not longer: once it is back, what came due meanwhile is fired soon."""
BREATH = 0.004
"""Between two looks, so that timers due in a burst are fired together and not one by one."""
LONGEST_BREATH = 0.064
"""Between two looks at something that is due and that somebody else holds."""


class Timers:
    def __init__(self, ledger: Ledger, broker: Broker, breath: float = BREATH) -> None:
        self.ledger = ledger
        self.broker = broker
        self.breath = breath
        self.longest_sleep: Callable[[], float] = lambda: LONGEST_SLEEP
        self.outage = Outage()
        self._pause = Pause(FIRST_PAUSE, LONGEST_PAUSE)
        self.fired = 0
        self.looked_at: float | None = None
        """When everything that was due had been fired last, as far as this loop knows."""
        self._sooner = asyncio.Event()
        self._next: float | None = None
        self._in_vain = 0
        """How often in a row something was due and nothing could be fired."""
        self._elsewhere = -math.inf
        """When another process has looked last, by the loop's clock."""

    def lag(self) -> float:
        """Seconds by which the next timer is overdue."""
        return max(self.ledger.now() - self._next, 0.0) if self._next is not None else 0.0

    def notice(self, due: float) -> None:
        """Something was parked; if it comes due before everything known, the sleep is cut short."""
        if self._next is None or due < self._next:
            self._next = due
            self._sooner.set()

    def look(self) -> None:
        """Now, for this process and its neighbours."""
        self._sooner.set()

    def notice_look(self) -> None:
        """Another process has just fired what was due, and fires what it has seen to come: a look here can wait."""
        self._elsewhere = asyncio.get_running_loop().time()

    async def run(self) -> None:
        while True:
            reached = await self._try_to_drain()
            await asyncio.sleep(self.breath)
            # What was noticed during the breath counts too: from here to the wait nothing else runs.
            self._sooner.clear()
            pause = max(self._until_next(), self._breath()) if reached else self._pause.next()
            if pause > 0:
                await self._rest(pause)

    async def _rest(self, seconds: float) -> None:
        """At most so long, and not longer than looks may lie apart, whoever makes them."""
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
        """Fires everything that is due, and notes when the next will be."""
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
        self._in_vain = self._in_vain + 1 if is_held else 0
        if due is not None:
            self.notice(due)

    def _breath(self) -> float:
        """Whoever holds what is due lets go of it soon, as a rule: at first it is tried again at once."""
        return min(BREATH * 2 ** (self._in_vain - 2), LONGEST_BREATH) if self._in_vain > 1 else 0.0

    def _until_next(self) -> float:
        return self._next - self.ledger.now() if self._next is not None else math.inf
