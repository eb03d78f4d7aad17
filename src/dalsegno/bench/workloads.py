"""The workloads: each drives a real engine on a real store, in this process or in workers beside it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from dalsegno.app import App
from dalsegno.bench import documents
from dalsegno.bench.crew import at_work
from dalsegno.bench.raw import raw_limits
from dalsegno.bench.report import Meter, Report, percentile
from dalsegno.engine.settings import EngineSettings
from dalsegno.handle import Handle

Progress = Callable[[str], None]


def application(url: str, concurrency: int = 500) -> App:
    """An application whose tasks cost nothing, so that what is measured is the engine."""
    app = App(url, settings=EngineSettings(concurrency=concurrency))

    @app.task
    async def step() -> dict[str, int]:
        return {"i": 1234}

    @app.task
    async def small(item: Any) -> Any:
        return item

    @app.task
    async def hundred(item: Any) -> str:
        return f"{item:x<98}"

    return app


async def timed(started: Awaitable[Handle], deadline: float) -> float:
    """Milliseconds from the start to the result."""
    began = time.perf_counter()
    handle = await started
    await handle.aresult(deadline)
    return (time.perf_counter() - began) * 1000


async def chain(
    url: str, progress: Progress, *, executions: int = 500, steps: int = 10, processes: int | None = None
) -> Report:
    """``executions`` workflows of ``steps`` durable steps each, all at once; ``processes`` work beside this one."""
    app = application(url)
    async with at_work(app, processes) as crew:
        definition = await app.adeploy(documents.chain(steps))
        await asyncio.gather(*(timed(app.astart(definition.name), 60) for _ in range(20)))
        progress(f"{executions} executions × {steps} steps")
        with crew.meter() as meter:
            times = await asyncio.gather(
                *(timed(app.astart(definition.name), 600) for _ in range(executions))
            )
    return Report(
        "chain",
        url,
        executions * steps / meter.seconds,
        percentile(times, 0.5),
        percentile(times, 0.99),
        meter.cpu,
        meter.rss,
        await raw_limits(url),
        {"executions": executions, "steps": steps, "seconds": meter.seconds, **crew.figures()},
    )


async def fanout(
    url: str, progress: Progress, *, items: int = 1000, rounds: int = 5, processes: int | None = None
) -> Report:
    """1 → ``items`` → 1, one execution after the other; ``processes`` work beside this one."""
    app = application(url)
    async with at_work(app, processes) as crew:
        definition = await app.adeploy(documents.fan_out("bench-fanout"))
        payload = {"items": list(range(items))}
        await timed(app.astart(definition.name, payload), 60)
        progress(f"{rounds} rounds of 1 → {items} → 1")
        with crew.meter() as meter:
            times = [await timed(app.astart(definition.name, payload), 600) for _ in range(rounds)]
    return Report(
        "fanout",
        url,
        items * rounds / meter.seconds,
        percentile(times, 0.5),
        percentile(times, 0.99),
        meter.cpu,
        meter.rss,
        await raw_limits(url),
        {"items": items, "rounds": rounds, "best_per_s": items / min(times) * 1000, **crew.figures()},
    )


async def latency(url: str, progress: Progress, *, rounds: int = 500, processes: int | None = None) -> Report:
    """One-step executions on an idle system: submit → result. With ``processes`` others do the step, so that each round
    holds two wake-ups from process to process: there is work, and there is a result."""
    app = application(url)
    async with at_work(app, processes) as crew:
        definition = await app.adeploy(documents.chain(1))
        for _ in range(20):
            await timed(app.astart(definition.name), 60)
        progress(f"{rounds} executions, one after the other")
        with crew.meter() as meter:
            times = [await timed(app.astart(definition.name), 60) for _ in range(rounds)]
    return Report(
        "latency",
        url,
        rounds / meter.seconds,
        percentile(times, 0.5),
        percentile(times, 0.99),
        meter.cpu,
        meter.rss,
        await raw_limits(url),
        {"rounds": rounds, **crew.figures()},
    )


async def split100k(url: str, progress: Progress, *, items: int = 100_000) -> Report:
    """One split of ``items`` items with 100-byte outputs; memory growth is the point."""
    app = application(url)
    async with app.running():
        definition = await app.adeploy(documents.fan_out("bench-split", "hundred"))
        await timed(app.astart(definition.name, {"items": list(range(100))}), 60)
        progress(f"one split of {items} items")
        payload = {"items": list(range(items))}
        with Meter() as meter:
            taken = await timed(app.astart(definition.name, payload), 3600)
    return Report(
        "split100k",
        url,
        items / meter.seconds,
        taken,
        taken,
        meter.cpu,
        meter.rss,
        await raw_limits(url),
        {"items": items, "rss_growth_mb": meter.growth, "seconds": meter.seconds},
    )
