"""The workloads and their graphs, scripts and timers. Each drives a real engine on a real store, with workers in this
process or in others. Scripts and Python workflows have the shapes of the graphs, for comparison.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from dalsegno.app import App
from dalsegno.bench.report import Meter, Report, raw_limits, reported
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


async def timed(started: Awaitable[Handle[Any]], deadline: float) -> float:
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


# -- scripts and Python workflows ------------------------------------------------------------------------------

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

Start = Callable[[], Awaitable[Handle[Any]]]


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


async def script_fanout(url: str, progress: Progress, *, items: int = 1000, rounds: int = 5) -> Report:
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


# -- the timers workload: many parked, then some due in the same second --------------------------------------

CHUNK = 1000
FAR = 7 * 24 * 3600.0
WARM_UP = 50
"""Timers that fire before the measured burst, because a store plans each statement when it is first used."""


async def timers(url: str, progress: Progress, *, parked: int = 1_000_000, due: int = 2000) -> Report:
    """Park ``parked`` timers far in the future, then make ``due`` more come due within one second."""
    app = application(url)
    woke: list[float] = []

    @app.task(name="woke")
    async def note(until: float) -> None:
        woke.append((time.time() - until) * 1000)

    async with app.running():
        definition = await app.adeploy(sleeper())
        rates: list[float] = []

        async def park(count: int, until: float) -> None:
            """Start executions and let the worker park them, one step each."""
            worker = app.engine.worker
            goal = (worker.steps_done if worker is not None else 0) + count
            await asyncio.gather(*(app.astart(definition.name, {"until": until}) for _ in range(count)))
            while worker is not None and worker.steps_done < goal:  # noqa: ASYNC110 - what is measured has no event
                await asyncio.sleep(0.001)

        with Meter() as meter:
            done = 0
            while done < parked:
                count = min(CHUNK, parked - done)
                began = time.perf_counter()
                await park(count, time.time() + FAR)
                rates.append(count / (time.perf_counter() - began))
                done += count
                if done % 10_000 == 0:
                    progress(f"{done} parked, {rates[-1]:,.0f}/s")

        async def burst(count: int) -> None:
            """Make that many timers come due within one second."""
            woke.clear()
            at = time.time() + max(3.0, count / 1000 * 2)
            await asyncio.gather(
                *(app.astart(definition.name, {"until": at + index / count}) for index in range(count))
            )
            while len(woke) < count:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.05)

        await burst(WARM_UP)
        progress(f"{due} due in the same second")
        await burst(due)
    tenth = max(len(rates) // 10, 1)
    figures = {
        "parked": parked,
        "due": due,
        "parked_per_s_first_tenth": sum(rates[:tenth]) / tenth,
        "parked_per_s_last_tenth": sum(rates[-tenth:]) / tenth,
    }
    return await reported("timers", url, parked, woke, meter, figures)
