"""Several processes on one store: the reconciler's round of one is enough for all."""

from __future__ import annotations

import asyncio

from dalsegno.engine.upkeep.reconciler import Reconciler
from dalsegno.wiring import open_stack

INTERVAL = 0.6


async def make() -> tuple[Reconciler, asyncio.Queue[float]]:
    """A reconciler, and the moments at which it has made its rounds."""
    stack = await open_stack("memory:")
    reconciler = Reconciler(stack.ledger, stack.archive, stack.broker, interval=INTERVAL)
    rounds: asyncio.Queue[float] = asyncio.Queue()
    reconciler.on_round = lambda: rounds.put_nowait(asyncio.get_running_loop().time())
    return reconciler, rounds


async def test_round_of_another_process_puts_off_the_next_one() -> None:
    reconciler, rounds = await make()
    running = asyncio.create_task(reconciler.run())
    await rounds.get()
    for _ in range(10):  # another process makes a round every 100 ms
        await asyncio.sleep(INTERVAL / 6)
        reconciler.notice_round()
    last = asyncio.get_running_loop().time()
    assert rounds.empty()

    again = await asyncio.wait_for(rounds.get(), 60)

    assert again - last >= INTERVAL * 0.9
    running.cancel()


async def test_alone_it_makes_its_rounds_by_itself() -> None:
    reconciler, rounds = await make()
    running = asyncio.create_task(reconciler.run())

    first, second = await rounds.get(), await asyncio.wait_for(rounds.get(), 60)

    assert second - first >= INTERVAL * 0.9
    running.cancel()
