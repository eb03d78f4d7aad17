"""Places of a lane: a caller that leaves while it waits takes no place with it."""

from __future__ import annotations

import asyncio

from dalsegno.engine.offload import Lane, OffloadLimits


def test_a_waiter_that_is_cancelled_as_a_job_ends_loses_no_place() -> None:
    async def scenario() -> None:
        lane = Lane(1, OffloadLimits())
        ends = asyncio.Event()

        async def job(key: str) -> str:
            async with lane.place(key):
                await ends.wait()
                return key

        running = asyncio.create_task(job("a"))
        await asyncio.sleep(0)
        leaving, staying = asyncio.create_task(job("b")), asyncio.create_task(job("b"))
        for _ in range(3):
            await asyncio.sleep(0)
        ends.set()
        leaving.cancel()  # in the iteration in which the place becomes free
        async with asyncio.timeout(5):
            assert await running == "a"
            assert await staying == "b"
            assert await job("c") == "c"
        await asyncio.wait({leaving})
        assert leaving.cancelled()

    asyncio.run(scenario())
