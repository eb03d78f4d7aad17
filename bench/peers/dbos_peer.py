"""DBOS does the work. Runs in DBOS's environment: ``python dbos_peer.py WORKLOAD URL SIZES-AS-JSON``."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from dbos import DBOS
from peer_report import Report, report


@DBOS.step()
def step() -> dict[str, int]:
    return {"i": 1234}


@DBOS.workflow()
def chain_of(steps: int) -> None:
    for _ in range(steps):
        step()


@DBOS.step()
async def part(item: int) -> int:
    return item


@DBOS.workflow()
async def fan_out(items: int) -> int:
    return len(await asyncio.gather(*(part(item) for item in range(items))))


@DBOS.workflow()
async def single() -> int:
    return await part(1)


def chain(executions: int, steps: int) -> Report:
    for handle in [DBOS.start_workflow(chain_of, steps) for _ in range(20)]:
        handle.get_result()
    began = time.perf_counter()
    for handle in [DBOS.start_workflow(chain_of, steps) for _ in range(executions)]:
        handle.get_result()
    return report(executions * steps / (time.perf_counter() - began))


def fanout(items: int, rounds: int) -> Report:
    async def run() -> list[float]:
        await fan_out(10)
        return [await timed(fan_out, items) for _ in range(rounds)]

    times = asyncio.run(run())
    return report(items * rounds / sum(times), times)


def latency(rounds: int) -> Report:
    async def run() -> list[float]:
        for _ in range(20):
            await timed(single)
        return [await timed(single) for _ in range(rounds)]

    times = asyncio.run(run())
    return report(rounds / sum(times), times)


async def timed(workflow: Any, *arguments: Any) -> float:
    began = time.perf_counter()
    handle = await DBOS.start_workflow_async(workflow, *arguments)
    await handle.get_result()
    return time.perf_counter() - began


def main(workload: str, url: str, sizes: str) -> None:
    DBOS(config={"name": "peers", "system_database_url": url, "log_level": "ERROR"})
    DBOS.launch()
    try:
        print(json.dumps(globals()[workload](**json.loads(sizes))), flush=True)
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    main(*sys.argv[1:])
