"""The timers workload: many parked, then some due in the same second."""

from __future__ import annotations

import asyncio
import time

from dalsegno.bench import workloads as documents
from dalsegno.bench.report import Meter, Report, reported
from dalsegno.bench.workloads import Progress, application

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
        definition = await app.adeploy(documents.sleeper())
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
