"""The workloads and their graphs. Each drives a real engine on a real store, with workers in this process or in
others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from dalsegno.app import App
from dalsegno.bench.raw_limits import raw_limits
from dalsegno.bench.report import Meter, Report, reported
from dalsegno.bench.worker_processes import with_workers
from dalsegno.engine.settings import EngineSettings
from dalsegno.handle import Handle


def chain_document(steps: int) -> dict[str, Any]:
    """Return a chain of ``steps`` durable steps, each a Python task with a 10-byte output."""
    nodes = [{"id": f"s{index}", "type": "task", "parameters": {"task": "step"}} for index in range(steps)]
    edges = [{"id": f"e{index}", "src": f"s{index}", "dst": f"s{index + 1}"} for index in range(steps - 1)]
    return {"name": f"bench-chain-{steps}", "nodes": nodes, "edges": edges}


def fan_out(name: str, output: str = "small") -> dict[str, Any]:
    """Return a graph with a list of any length, one task per item, and one list of results."""
    task = {"task": output, "input": "$item"}
    return {
        "name": name,
        "nodes": [
            {"id": "each", "type": "split", "parameters": {"input_array": "$trigger.items"}},
            {"id": "work", "type": "task", "parameters": task},
            {"id": "all", "type": "aggregator", "parameters": {}},
        ],
        "edges": [{"id": "in", "src": "each", "dst": "work"}, {"id": "out", "src": "work", "dst": "all"}],
        "output": "{{ $all.length }}",
    }


def sleeper() -> dict[str, Any]:
    """Return a graph that sleeps until a given time, then records when it woke."""
    return {
        "name": "bench-sleeper",
        "nodes": [
            {"id": "sleep", "type": "wait", "parameters": {"resume": "until", "until": "$trigger.until"}},
            {"id": "woke", "type": "task", "parameters": {"task": "woke", "input": "$trigger.until"}},
        ],
        "edges": [{"id": "then", "src": "sleep", "dst": "woke"}],
    }


Progress = Callable[[str], None]


def application(url: str, concurrency: int = 625) -> App:
    """Return an application whose tasks cost nothing, so that only the engine is measured.

    One workflow may hold 500 of the slots.
    """
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
    """Return the milliseconds from the start to the result."""
    began = time.perf_counter()
    handle = await started
    await handle.aresult(deadline)
    return (time.perf_counter() - began) * 1000


async def chain(
    url: str, progress: Progress, *, executions: int = 500, steps: int = 10, processes: int | None = None
) -> Report:
    """Run ``executions`` workflows of ``steps`` durable steps each, all at once; ``processes``: number of further
    worker processes.
    """
    app = application(url)
    async with with_workers(app, processes) as workers:
        definition = await app.adeploy(chain_document(steps))
        await asyncio.gather(*(timed(app.astart(definition.name), 60) for _ in range(20)))
        progress(f"{executions} executions × {steps} steps")
        with workers.meter() as meter:
            times = await asyncio.gather(
                *(timed(app.astart(definition.name), 600) for _ in range(executions))
            )
    figures = {"executions": executions, "steps": steps, "seconds": meter.seconds, **workers.figures()}
    return await reported("chain", url, executions * steps, times, meter, figures)


async def fanout(
    url: str, progress: Progress, *, items: int = 1000, rounds: int = 5, processes: int | None = None
) -> Report:
    """Run 1 → ``items`` → 1, one execution after the other; ``processes``: number of further worker processes."""
    app = application(url)
    async with with_workers(app, processes) as workers:
        definition = await app.adeploy(fan_out("bench-fanout"))
        payload = {"items": list(range(items))}
        await timed(app.astart(definition.name, payload), 60)
        progress(f"{rounds} rounds of 1 → {items} → 1")
        with workers.meter() as meter:
            times = [await timed(app.astart(definition.name, payload), 600) for _ in range(rounds)]
    figures = {"items": items, "rounds": rounds, "best_per_s": items / min(times) * 1000, **workers.figures()}
    return await reported("fanout", url, items * rounds, times, meter, figures)


async def latency(url: str, progress: Progress, *, rounds: int = 500, processes: int | None = None) -> Report:
    """Run one-step executions on an idle system and measure from start to result.

    With ``processes``, others do the step. Each round then has two notifications between processes: of the work and
    of the result.
    """
    app = application(url)
    async with with_workers(app, processes) as workers:
        definition = await app.adeploy(chain_document(1))
        for _ in range(20):
            await timed(app.astart(definition.name), 60)
        progress(f"{rounds} executions, one after the other")
        with workers.meter() as meter:
            times = [await timed(app.astart(definition.name), 60) for _ in range(rounds)]
    figures = {"rounds": rounds, **workers.figures()}
    return await reported("latency", url, rounds, times, meter, figures)


async def split100k(url: str, progress: Progress, *, items: int = 100_000) -> Report:
    """Run one split of ``items`` items with 100-byte outputs, to measure memory growth."""
    app = application(url)
    async with app.running():
        definition = await app.adeploy(fan_out("bench-split", "hundred"))
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
