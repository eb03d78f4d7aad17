"""Starts over HTTP at a steady rate: a separate server process, and a load generator with few loopback connections.

The generator is open-loop: it sends when a start is due, not when the last answer arrived. A server that falls behind
shows in the latencies instead of in a lower rate.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

from dalsegno.bench.report import Meter, Report, reported
from dalsegno.bench.server_process import Line, all_completed, connected, served
from dalsegno.bench.workloads import Progress

GRAPH: dict[str, Any] = {
    "name": "bench-http",
    "nodes": [
        {
            "id": "one",
            "type": "edit",
            "parameters": {"assignments": [{"name": "n", "value": "{{ input.n }}"}]},
        }
    ],
    "output": "$one.n",
}
CONNECTIONS = 16


async def http(url: str, progress: Progress, *, rate: int = 500, seconds: int = 60) -> Report:
    """Start ``rate`` executions a second for ``seconds`` seconds, then check that every one of them has completed."""
    async with served(url) as port, connected(port, CONNECTIONS) as lines:
        await lines[0].ask("POST", "/v1/definitions", GRAPH)
        progress(f"{rate} starts/s for {seconds} s over {CONNECTIONS} connections")
        with Meter() as meter:
            times = await _load(lines, rate, rate * seconds)
        ended, waited = await all_completed(port, GRAPH["name"], rate * seconds, progress)
    late = [each for each in times if each > 1000]
    figures = {
        "asked_per_s": rate,
        "started": len(times),
        "completed": ended,
        "lost": len(times) - ended,
        "slower_than_1_s": len(late),
        "seconds_until_all_had_ended": waited,
    }
    return await reported("http", url, len(times), times, meter, figures)


# -- the generator --------------------------------------------------------------------------------------------


async def _load(lines: list[Line], rate: int, count: int) -> list[float]:
    """Return the milliseconds from when each start was due to its answer."""
    due = deque(range(count))
    times: list[float] = []
    began = time.perf_counter()

    async def send(line: Line) -> None:
        while due:
            number = due.popleft()
            at = began + number / rate
            await asyncio.sleep(max(at - time.perf_counter(), 0))
            await line.ask("POST", "/v1/executions", {"workflow": "bench-http", "input": {"n": number}})
            times.append((time.perf_counter() - at) * 1000)

    await asyncio.gather(*(send(line) for line in lines))
    return times
