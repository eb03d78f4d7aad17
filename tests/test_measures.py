"""What other tests measure with: a gap of the event loop and a peak of memory are seen wherever they lie."""

from __future__ import annotations

import asyncio
import time

from tests.loop_gaps import LoopGaps
from tests.peak_memory import peak_kib, reset_peak


def compute(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


async def test_a_block_is_seen_at_the_end_of_the_watch() -> None:
    async with LoopGaps() as gaps:
        compute(0.1)
    assert gaps.longest > 0.09
    assert gaps.worked > 0.09


async def test_a_thread_that_keeps_the_interpreter_from_the_loop_is_seen() -> None:
    numbers = list(range(3_000_000))

    def hold() -> None:
        numbers.count(-1)  # one call, which does not let go

    began = time.thread_time()
    hold()
    alone = time.thread_time() - began
    async with LoopGaps() as gaps:
        await asyncio.to_thread(hold)
    assert gaps.longest > alone / 2


async def test_waiting_is_no_gap() -> None:
    async with LoopGaps() as gaps:
        await asyncio.sleep(0.2)
    assert gaps.longest < 0.1


def test_a_peak_is_seen_again_after_it_was_freed() -> None:
    for _ in range(2):
        resident = reset_peak()
        bytearray(b"x") * 30_000_000
        assert 25_000 < peak_kib() - resident < 60_000
