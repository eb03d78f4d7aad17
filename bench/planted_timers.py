"""What planted timers cost in Redis as their number grows: planting, and claiming and handing over those that are due.

``python bench/planted_timers.py redis://localhost:6379/9 --planted 10000 100000 1000000``

The database must be empty. The intake only counts: the figures are those of Redis and its adapter, not of the store.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from dalsegno.adapters.redis import RedisConnection
from dalsegno.adapters.redis.dead_letters import RedisDeadLetters
from dalsegno.adapters.redis.timers import LOOK_EVERY, PAYLOADS, PROCESSING, TIMERS, RedisTimers
from dalsegno.ports.messages import ForeignMessage, Taken

BODY = (
    b'{"workflow_id":"w","execution_id":"e","current_node":"n","workflow_definition":{},"lineage_stack":[]}'
)
DUE = 500
LOT = 5000
ROUNDS = 10


class Counter:
    def __init__(self) -> None:
        self.taken = 0
        self.all_taken = asyncio.Event()

    async def take(self, message: ForeignMessage) -> Taken:
        self.taken += 1
        if self.taken >= DUE:
            self.all_taken.set()
        return Taken("applied")


async def plant(client: Any, prefix: str, count: int, at: float) -> None:
    for begin in range(0, count, LOT):
        ids = [f"{prefix}-{number}" for number in range(begin, min(begin + LOT, count))]
        async with client.pipeline(transaction=False) as pipeline:
            pipeline.hset(PAYLOADS, mapping=dict.fromkeys(ids, BODY))
            pipeline.zadd(TIMERS, dict.fromkeys(ids, int(at * 1000)))
            await pipeline.execute()


async def measure(connection: RedisConnection, planted: int) -> None:
    client = connection.client
    before = await client.zcard(TIMERS)
    began = time.perf_counter()
    await plant(client, f"later-{planted}", planted - before, time.time() + 86_400)
    seconds = time.perf_counter() - began
    times = []
    for number in range(ROUNDS):
        intake, timers = Counter(), RedisTimers(connection, RedisDeadLetters(connection))
        await plant(client, f"due-{planted}-{number}", DUE, time.time())
        at = time.perf_counter()
        timers.start(intake)
        await intake.all_taken.wait()
        times.append(time.perf_counter() - at)
        while await client.exists(PROCESSING):  # noqa: ASYNC110 - Redis does not tell
            await asyncio.sleep(0.001)
        await timers.stop()
        await client.delete("wf:timers:turn")
    rate = (planted - before) / seconds
    print(
        f"{planted:>9,} planted: {rate:>9,.0f}/s planted, {DUE} due handed over in "
        f"{sorted(times)[ROUNDS // 2] * 1000:.1f} ms (median of {ROUNDS}; a look every {LOOK_EVERY} s)"
    )


async def main(url: str, counts: list[int]) -> None:
    connection = RedisConnection(url)
    await connection.open()
    try:
        if await connection.client.dbsize():
            raise SystemExit(f"{connection.url} is not empty: give an empty database")
        for planted in sorted(counts):
            await measure(connection, planted)
    finally:
        await connection.client.delete(TIMERS, PAYLOADS, PROCESSING)
        await connection.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--planted", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    given = parser.parse_args()
    asyncio.run(main(given.url, given.planted))
