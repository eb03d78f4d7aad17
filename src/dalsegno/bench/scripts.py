"""Workloads of scripts and Python workflows, with the same shapes as the graph workloads for comparison."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dalsegno.app import App
from dalsegno.bench.report import Meter, Report, reported
from dalsegno.bench.workloads import Progress, application, timed
from dalsegno.handle import Handle

CHAIN = """\
workflow bench_script(inputs) {
  for (let i = 0; i < inputs.steps; i++) {
    await Task.run("step", null)
  }
}
"""

FAN_OUT = """\
workflow bench_script_fanout(inputs) {
  const promises = inputs.items.map(item => Task.run("small", item))
  return (await Task.all(promises)).length
}
"""

Start = Callable[[], Awaitable[Handle]]


async def script(url: str, progress: Progress, *, executions: int = 500, steps: int = 10) -> Report:
    """Run ``executions`` scripts of ``steps`` sequential tasks each, all scripts at once."""
    app = application(url)
    async with app.running():
        definition = await app.adeploy_script(CHAIN)
        return await _chains(
            "script", app, progress, executions, steps, lambda: app.astart(definition.name, {"steps": steps})
        )


async def python(url: str, progress: Progress, *, executions: int = 500, steps: int = 10) -> Report:
    """Run the same chain as a Python workflow."""
    app = application(url)

    @app.task
    async def one() -> dict[str, int]:
        return {"i": 1234}

    @app.workflow
    async def bench_python(steps: int) -> None:
        for _ in range(steps):
            await one()

    async with app.running():
        return await _chains(
            "python", app, progress, executions, steps, lambda: app.astart(bench_python, steps)
        )


async def _chains(
    workload: str, app: App, progress: Progress, executions: int, steps: int, start: Start
) -> Report:
    await asyncio.gather(*(timed(start(), 60) for _ in range(20)))
    progress(f"{executions} executions × {steps} tasks")
    with Meter() as meter:
        times = await asyncio.gather(*(timed(start(), 600) for _ in range(executions)))
    figures = {"executions": executions, "steps": steps, "seconds": meter.seconds}
    return await reported(workload, app.url, executions * steps, times, meter, figures)


async def fanout(url: str, progress: Progress, *, items: int = 1000, rounds: int = 5) -> Report:
    """Run 1 → ``items`` → 1 under one ``Task.all``, one execution after the other."""
    app = application(url)
    payload = {"items": list(range(items))}
    async with app.running():
        definition = await app.adeploy_script(FAN_OUT)
        await timed(app.astart(definition.name, payload), 60)
        progress(f"{rounds} rounds of 1 → {items} → 1")
        with Meter() as meter:
            times = [await timed(app.astart(definition.name, payload), 600) for _ in range(rounds)]
    figures = {"items": items, "rounds": rounds, "best_per_s": items / min(times) * 1000}
    return await reported("fanout of a script", url, items * rounds, times, meter, figures)
