"""Several processes on one store: one look for timers is enough for all; what is due soon is fired all the same."""

from __future__ import annotations

import asyncio

from dalsegno.adapters.memory import MemoryBroker, MemoryLedger
from dalsegno.engine.upkeep.timers import LONGEST_RETRY, Timers
from dalsegno.ports.ledger import Woken
from dalsegno.testing.contract.builders import start, token
from dalsegno.wiring import SystemClock

APART = 0.6


class WatchedLedger(MemoryLedger):
    """Tells of every look for timers."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.looks: asyncio.Queue[float] = asyncio.Queue()

    async def wake(self, limit: int = 500) -> Woken:
        woken = await super().wake(limit)
        self.looks.put_nowait(asyncio.get_running_loop().time())
        return woken

    async def next_look(self) -> float:
        return await asyncio.wait_for(self.looks.get(), 60)


def make() -> tuple[Timers, WatchedLedger]:
    ledger = WatchedLedger()
    timers = Timers(ledger, MemoryBroker(ledger))
    timers.longest_sleep = lambda: APART
    return timers, ledger


async def test_alone_it_looks_by_itself() -> None:
    timers, ledger = make()
    running = asyncio.create_task(timers.run())

    first, second = await ledger.next_look(), await ledger.next_look()

    assert second - first >= APART
    running.cancel()


async def test_look_of_another_process_puts_off_the_next_one() -> None:
    clock = asyncio.get_running_loop().time
    for _ in range(5):
        timers, ledger = make()
        running = asyncio.create_task(timers.run())
        first = last = await ledger.next_look()
        longest = 0.0
        for _ in range(10):  # another process looks every 100 ms
            await asyncio.sleep(APART / 6)
            timers.notice_look()
            longest, last = max(longest, clock() - last), clock()
        if longest < APART / 2:
            break
        running.cancel()  # the machine stood still for so long that the process had to look itself
    assert ledger.looks.empty()
    assert timers.looked_at is not None
    assert ledger.now() - timers.looked_at < last - first, "health sees that timers are looked for"

    again = await ledger.next_look()

    assert again - last >= APART * 0.9
    running.cancel()


async def test_what_is_due_is_fired_although_another_process_has_just_looked() -> None:
    timers, ledger = make()
    timers.longest_sleep = lambda: 60.0
    due = ledger.now() + 0.5
    await ledger.commit([start("run", token("late", due=due))])
    running = asyncio.create_task(timers.run())
    await ledger.next_look()
    timers.notice_look()

    await ledger.next_look()

    assert ledger.now() >= due
    assert await ledger.ready("run")
    running.cancel()


async def test_look_is_made_at_once_where_this_process_does_it_for_all() -> None:
    timers, ledger = make()
    timers.longest_sleep = lambda: 60.0
    running = asyncio.create_task(timers.run())
    first = await ledger.next_look()
    await asyncio.sleep(0.05)

    timers.look()

    assert await ledger.next_look() - first < 5
    running.cancel()


class HeldLedger(WatchedLedger):
    """Something is due, and another process holds it."""

    held = True

    async def wake(self, limit: int = 500) -> Woken:
        if not self.held:
            return await super().wake(limit)
        self.looks.put_nowait(asyncio.get_running_loop().time())
        return Woken((), self.now() - 1.0)


async def test_what_another_process_holds_is_tried_less_and_less_often_until_it_is_fired() -> None:
    ledger = HeldLedger()
    await ledger.commit([start("run", token("due", due=ledger.now() - 1.0))])
    timers = Timers(ledger, MemoryBroker(ledger))
    running = asyncio.create_task(timers.run())
    looks = [await ledger.next_look() for _ in range(10)]
    assert looks[9] - looks[8] >= LONGEST_RETRY

    ledger.held = False
    await ledger.next_look()

    assert await ledger.ready("run")
    running.cancel()
