"""``moves``: suspended executions go on with another version of their program, first scripts, then Python workflows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from dalsegno.app import App
from dalsegno.bench.report import Meter, Report, percentile, raw_limits
from dalsegno.bench.workloads import Progress, application
from dalsegno.engine.operations.moves import CHUNK
from dalsegno.errors import UsageError
from dalsegno.lang.python import signal

SCRIPT = "bench_moved_script"
OLD = """\
workflow bench_moved_script(inputs) {
  const order = {number: inputs.number, lines: ["cup", "pot"]}
  const answer = await Signal.next("go")
  return {answer, order}
}
"""
NEW = """\
workflow bench_moved_script(inputs) {
  if (inputs.number < 0) { throw "there is no such order" }
  const order = {number: inputs.number, lines: ["cup", "pot"]}
  const answer = await Signal.next("go")
  return {answer, order, version: 2}
}
"""
PYTHON = "bench_moved_python"
ENDED = 20
"""Moved executions that are let go on, to see that they do."""


def _old(app: App) -> None:
    @app.workflow(name=PYTHON)
    async def bench_moved_python(number: int) -> dict[str, Any]:
        order = {"number": number, "lines": ["cup", "pot"]}
        answer = await signal("go")
        return {"answer": answer, "order": order}


def _new(app: App) -> None:
    @app.workflow(name=PYTHON)
    async def bench_moved_python(number: int) -> dict[str, Any]:
        if number < 0:
            raise ValueError("there is no such order")
        order = {"number": number, "lines": ["cup", "pot"]}
        answer = await signal("go")
        return {"answer": answer, "order": order, "version": 2}


async def moves(url: str, progress: Progress, *, executions: int = 10_000) -> Report:
    if url.startswith("memory:"):
        raise UsageError("this workload opens its store again, which a store in memory does not survive")
    old, new = application(url), application(url)
    _old(old)
    _new(new)
    async with old.running():
        await old.adeploy_script(OLD)
        await _suspend(old, progress, executions, lambda number: (SCRIPT, {"number": number}))
        await _suspend(old, progress, executions, lambda number: (PYTHON, number))
    async with new.running():
        await new.adeploy_script(NEW)
        await new.workflows.ensure_all(new.client)
        with Meter() as meter:
            scripts, times = await _move(new, SCRIPT, executions)
            progress(f"{executions:,} scripts moved in {scripts:.1f} s")
            python, more = await _move(new, PYTHON, executions)
            progress(f"{executions:,} Python workflows moved in {python:.1f} s")
        await _check(new)
    times += more
    return Report(
        "moves",
        url,
        2 * executions / meter.seconds,
        percentile(times, 0.5),
        percentile(times, 0.99),
        meter.cpu,
        meter.rss,
        await raw_limits(url),
        {
            "executions": executions,
            "scripts_seconds": scripts,
            "python_seconds": python,
            "of_a_chunk": CHUNK,
        },
    )


async def _suspend(
    app: App, progress: Progress, executions: int, call: Callable[[int], tuple[str, Any]]
) -> None:
    worker = app.engine.worker
    began = worker.steps_done if worker is not None else 0
    for start in range(0, executions, CHUNK):
        numbers = range(start, min(start + CHUNK, executions))
        await asyncio.gather(*(app.astart(*call(number)) for number in numbers))
        while worker is not None and worker.steps_done - began < numbers.stop:  # noqa: ASYNC110 - has no event
            await asyncio.sleep(0.001)
    progress(f"{executions:,} suspended")


async def _move(app: App, workflow: str, executions: int) -> tuple[float, list[float]]:
    """Move all; return the seconds, and the milliseconds of each chunk."""
    began, times, moved = time.perf_counter(), [], 0
    cursor: str | None = None
    while True:
        since = time.perf_counter()
        report = await app.client.move_some(workflow, 1, 2, cursor=cursor)
        times.append((time.perf_counter() - since) * 1000)
        moved += report.moved
        if report.refusals:
            raise UsageError(f"an execution was refused: {report.refusals[0].detail}")
        cursor = report.next
        if cursor is None:
            break
    if moved != executions:
        raise UsageError(f"{moved:,} of {executions:,} executions were moved; give a new store")
    return time.perf_counter() - began, times


async def _check(app: App) -> None:
    for workflow in (SCRIPT, PYTHON):
        for handle in await app.aexecutions(workflow, limit=ENDED):
            await handle.asignal("go", 1)
            if (await handle.aresult(60))["version"] != 2:
                raise UsageError(f"execution {handle.id} of '{workflow}' did not go on with version 2")
