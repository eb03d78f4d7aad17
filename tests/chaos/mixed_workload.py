"""Graphs, scripts, Python workflows, transactional steps and limits, for processes that come and go on PostgreSQL, and
a graph with a task for programs elsewhere.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dalsegno import App, NodeContext, gather, sleep
from dalsegno.engine.settings import EngineLimits, EngineSettings
from tests.chaos import workload
from tests.scenarios.documents import graph, task, wait

LEASE = 5.0
UNCOUNTED = 1_000_000
"""Processes die here every second; that five deaths fail a step is tested on its own."""
MOMENT = 0.01
MARKS = "DALSEGNO_TEST_MARKS"
"""The folder in which the task ``linger`` says that it has come, and is told to go."""

GRAPHS = workload.DOCUMENTS

ORDER = """
workflow order(inputs) {
  const first = await Task.run("double", inputs.n)
  await Timer.delay(0.05)
  const go = await Signal.when("go")
  const both = await Task.all([Task.run("double", go.n), Task.run("double", inputs.n + 1)])
  return first + both[0] + both[1]
}
"""
LANES = 4
"""Of the workflow ``narrow``: two of each run at once, and three of the steps that all of them share."""
BOOKINGS = "CREATE TABLE public.booked (number bigint NOT NULL)"
"""Without a key: what is done twice is in it twice."""

RUNS = "DALSEGNO_TEST_RUNS"
"""The file in which each run of the task ``count`` leaves a line."""
FOREIGN = "images"
"""The queue of workers that are not ours."""
_COUNTED = task("count", "{{ $trigger.n }}")
COUNTED = graph(
    "one > two > resize > three",
    {
        "one": _COUNTED,
        "two": _COUNTED,
        "resize": task("resize", {"file": "{{ `${$trigger.n}.png` }}", "tenths": 0}, queue=FOREIGN),
        "three": _COUNTED,
    },
    name="counted",
    output="$resize.file",
)

PAUSED = graph("pause > one", {"pause": wait(3600), "one": _COUNTED}, name="paused", output="$one")
"""Its timers are planted by others: it never waits that long."""

app = workload.register(App("memory:"), moment=MOMENT)


@app.task
async def count(ctx: NodeContext, number: int) -> int:
    file = os.open(os.environ[RUNS], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, f"{ctx.idempotency_key}\n".encode())
    os.close(file)
    await asyncio.sleep(MOMENT)
    return number


@app.task
async def double(number: int) -> int:
    await asyncio.sleep(MOMENT)
    return number * 2


@app.task(concurrency={"key": "squeeze", "limit": 3})
async def squeeze(number: int) -> int:
    await asyncio.sleep(MOMENT)
    return number + 1


@app.task
async def book(ctx: NodeContext, number: int) -> int:
    async with ctx.transaction() as connection:
        await connection.execute("INSERT INTO public.booked VALUES ($1)", number)
    return number


@app.task
async def linger() -> int:
    """Leaves a mark when it comes, and stays until its process may go. Tells who did it."""
    folder = Path(os.environ[MARKS])
    (folder / f"came-{os.getpid()}").touch()
    while not (folder / f"go-{os.getpid()}").exists():  # noqa: ASYNC110 - another process decides
        await asyncio.sleep(MOMENT)
    return os.getpid()


@app.workflow
async def booking(number: int) -> int:
    total = await double(number)
    await sleep(0.05)
    total += sum(await gather(*[double(number + place) for place in range(3)]))
    return total + await book(number)


@app.workflow(concurrency={"key": "$trigger.lane", "limit": 2})
async def narrow(lane: str, number: int) -> int:
    """The lane is for its limit alone."""
    first = await squeeze(number)
    return first + sum(await gather(squeeze(number), double(number)))


@app.workflow
async def lingering() -> int:
    return await linger()


def settings() -> EngineSettings:
    return EngineSettings(
        concurrency=20, lease_seconds=LEASE, reconcile_every=2.0, limits=EngineLimits(losses=UNCOUNTED)
    )


def expected_order(number: int) -> int:
    return number * 2 + signalled(number) * 2 + (number + 1) * 2


def signalled(number: int) -> int:
    return number * 3


def expected_booking(number: int) -> int:
    return number * 2 + sum((number + place) * 2 for place in range(3)) + number


def expected_narrow(number: int) -> int:
    return (number + 1) * 2 + number * 2


def expected_counted(number: int) -> str:
    return f"{number}-small.png"


def is_fleeting(kind: str, number: int) -> bool:
    """Cancelled at once, while it stands in line or is just being claimed."""
    return kind == "narrow" and number % 3 == 0


EXPECTED: dict[str, Callable[[int], Any]] = {
    "order": expected_order,
    "booking": expected_booking,
    "narrow": expected_narrow,
    "counted": expected_counted,
}


def payload(kind: str, number: int) -> Any:
    if kind in ("order", "counted"):
        return {"n": number}
    if kind == "narrow":
        return {"lane": f"lane-{number % LANES}", "number": number}
    return number if kind == "booking" else workload.payload(number % 100)
