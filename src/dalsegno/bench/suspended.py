"""The suspended workload: many scripts wait for a signal; a new process finds them, and any of them goes on at once.

What waits holds nothing but its row, so the second process must be as small and as quick to start as on an empty store.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from random import Random
from typing import Any

from dalsegno.app import App
from dalsegno.bench.raw import raw_limits
from dalsegno.bench.report import Meter, Report, percentile, resident_mb
from dalsegno.bench.workloads import Progress, application
from dalsegno.errors import UsageError

SOURCE = """\
workflow bench_suspended(inputs) {
  const answer = await Signal.next("go")
  return {answer, number: inputs.number}
}
"""
NAME = "bench_suspended"
CHUNK = 500
SHOWN = 10_000


async def suspended(url: str, progress: Progress, *, executions: int = 100_000, rounds: int = 200) -> Report:
    """Suspends ``executions`` scripts, then resumes ``rounds`` of them from a process that has just started."""
    if url.startswith("memory:"):
        raise UsageError("this workload restarts its process, which a store in memory does not survive")
    app = application(url)
    async with app.running():
        with Meter() as meter:
            chosen = await _suspend(app, progress, executions, rounds)
    progress(f"a new process resumes {len(chosen)} of them")
    found = await _elsewhere(url, chosen)
    return Report(
        "suspended",
        url,
        executions / meter.seconds,
        percentile(found["resumed_ms"], 0.5),
        percentile(found["resumed_ms"], 0.99),
        meter.cpu,
        found["rss_mb"],
        await raw_limits(url),
        {
            "suspended": executions,
            "restart_ms": found["restart_ms"],
            "rss_mb_after_restart": found["rss_mb"],
            "resumed": len(chosen),
            "slowest_resume_ms": max(found["resumed_ms"]),
        },
    )


async def _suspend(app: App, progress: Progress, executions: int, rounds: int) -> list[str]:
    """The ids of those that will be resumed."""
    definition = await app.adeploy_script(SOURCE)
    worker = app.engine.worker
    began = worker.steps_done if worker is not None else 0
    names: list[str] = []
    for start in range(0, executions, CHUNK):
        numbers = range(start, min(start + CHUNK, executions))
        handles = await asyncio.gather(
            *(app.astart(definition.name, {"number": number}) for number in numbers)
        )
        names += [handle.id for handle in handles]
        while worker is not None and worker.steps_done - began < len(names):  # noqa: ASYNC110 - has no event
            await asyncio.sleep(0.001)
        if len(names) % SHOWN == 0:
            progress(f"{len(names):,} suspended")
    return Random(1).sample(names, min(rounds, len(names)))


async def _elsewhere(url: str, chosen: list[str]) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "dalsegno.bench.suspended",
        url,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    answer, _ = await process.communicate(json.dumps(chosen).encode())
    found: dict[str, Any] = json.loads(answer)
    return found


async def resume_here(url: str, chosen: list[str]) -> dict[str, Any]:
    """The second process: how long it takes to open the store, what it weighs, how soon each script has ended."""
    began = time.perf_counter()
    app = application(url)
    async with app.running():
        opened = time.perf_counter() - began
        rss = resident_mb()
        times = []
        for name in chosen:
            handle = app.handle(name)
            sent = time.perf_counter()
            await handle.asignal("go", 1)
            await handle.aresult(60)
            times.append((time.perf_counter() - sent) * 1000)
    return {"restart_ms": opened * 1000, "rss_mb": rss, "resumed_ms": times}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(resume_here(sys.argv[1], json.load(sys.stdin)))))
