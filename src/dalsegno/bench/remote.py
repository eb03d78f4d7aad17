"""Tasks through the API of remote workers, which take them in batches, answer each one and do no other work.

The tasks exist before the clock starts, so that only ``/v1/tasks/claim`` and ``/complete`` are measured.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

from dalsegno.bench.raw_limits import raw_limits
from dalsegno.bench.report import Meter, Report, percentile
from dalsegno.bench.server_process import PATIENCE, Line, all_completed, connected, served
from dalsegno.bench.workloads import Progress
from dalsegno.errors import InternalError

QUEUE = "bench-remote"
GRAPH: dict[str, Any] = {
    "name": "bench-remote",
    "nodes": [
        {"id": "one", "type": "task", "queue": QUEUE, "parameters": {"task": "echo", "input": "$trigger.n"}}
    ],
}
STARTERS = 16
WAIT = 5.0
"""Seconds that a claim waits for the first task. If no task is answered in ``PATIENCE``, one was lost."""


async def remote(
    url: str, progress: Progress, *, tasks: int = 10_000, workers: int = 8, batch: int = 20
) -> Report:
    """Run ``tasks`` executions of one task each on ``workers`` connections that take ``batch`` tasks at once."""
    async with served(url) as port:
        await _start(port, tasks, progress)
        progress(f"{workers} workers take {batch} at once")
        async with connected(port, workers) as lines:
            crew = [Worker(f"bench-{number}", line, batch) for number, line in enumerate(lines)]
            began = time.perf_counter()
            with Meter() as meter:
                await asyncio.gather(*(each.work(tasks, crew) for each in crew))
        completed, _ = await all_completed(port, GRAPH["name"], tasks, progress)
    times = [took for each in crew for took in each.times]
    return Report(
        "remote",
        url,
        len(times) / (max(each.last for each in crew) - began),  # the last claims wait without a task
        percentile(times, 0.5),
        percentile(times, 0.99),
        meter.cpu,
        meter.rss,
        await raw_limits(url),
        {
            "tasks": tasks,
            "workers": workers,
            "batch": batch,
            "claims": sum(each.claims for each in crew),
            "completed": completed,
            "lost": tasks - completed,
        },
    )


class Worker:
    def __init__(self, name: str, line: Line, batch: int) -> None:
        self.name = name
        self.line = line
        self.batch = batch
        self.claims = 0
        self.last = 0.0
        self.times: list[float] = []
        """Milliseconds from sending each answer to its acceptance."""

    async def work(self, tasks: int, crew: list[Worker]) -> None:
        """Work until all workers together have answered every task."""
        began, before = time.perf_counter(), 0
        while (done := sum(len(each.times) for each in crew)) < tasks:
            if done > before:
                began, before = time.perf_counter(), done
            elif time.perf_counter() - began > PATIENCE:
                raise InternalError(
                    f"nothing happened for {PATIENCE:g} s, and {tasks - done:,} tasks are not done"
                )
            asked = {"worker": self.name, "queues": [QUEUE], "limit": self.batch, "wait": WAIT}
            found = (await self.line.ask("POST", "/v1/tasks/claim", asked))["tasks"]
            self.claims += 1
            for task in found:
                await self._answer(task["id"], task["fence"], task["input"])

    async def _answer(self, task: str, fence: int, output: object) -> None:
        began = time.perf_counter()
        await self.line.ask("POST", f"/v1/tasks/{task}/complete", {"fence": fence, "output": output})
        self.last = time.perf_counter()
        self.times.append((self.last - began) * 1000)


async def _start(port: int, count: int, progress: Progress) -> None:
    progress(f"starting {count:,} executions of one task")
    due = deque(range(count))

    async def send(line: Line) -> None:
        while due:
            body = {"workflow": GRAPH["name"], "input": {"n": due.popleft()}}
            await line.ask("POST", "/v1/executions", body)

    async with connected(port, STARTERS) as lines:
        await lines[0].ask("POST", "/v1/definitions", GRAPH)
        await asyncio.gather(*map(send, lines))
