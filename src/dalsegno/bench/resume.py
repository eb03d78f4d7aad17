"""Workloads of suspended scripts.

* ``suspended``: many scripts wait for a signal, and a new process resumes some of them. A waiting script holds
  nothing but its row, so the process must start as fast and as small as on an empty store.
* ``resume``: the CPU cost of resuming a stored machine: load, run to the next await, store. Without store and engine.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any

from dalsegno.app import App
from dalsegno.bench.report import Meter, Report, percentile, raw_limits, resident_mb
from dalsegno.bench.workloads import Progress, application
from dalsegno.errors import UsageError
from dalsegno.lang import Machine, Ok
from dalsegno.lang import compile as compile_script
from dalsegno.lang.python import DurableTask, PythonMachine, compile_workflow, sleep
from dalsegno.wiring import STORE_VARIABLE

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
    """Suspend ``executions`` scripts, then resume ``rounds`` of them from a process that has just started."""
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
    """Return the ids of the executions to resume."""
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
        "dalsegno.bench.resume",
        env={**os.environ, STORE_VARIABLE: url},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    answer, _ = await process.communicate(json.dumps(chosen).encode())
    found: dict[str, Any] = json.loads(answer)
    return found


async def resume_here(url: str, chosen: list[str]) -> dict[str, Any]:
    """Run the second process: measure the time to open the store, its memory, and how soon each script has ended."""
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
    print(json.dumps(asyncio.run(resume_here(os.environ[STORE_VARIABLE], json.load(sys.stdin)))))


NOW = 1_700_000_000.0
SNAPSHOT = 1000
"""Bytes: a machine with some data in its variables."""

SCRIPT = """\
workflow bench_resume(inputs) {
  const order = inputs.order
  let done = 0
  while (true) {
    const paid = await Task.run("step", {number: done, customer: order.customer})
    done += paid
  }
}
"""


async def step(number: int, customer: str) -> int:
    return number if customer else 1


_step = DurableTask(step)


async def workflow(order: dict[str, Any]) -> None:
    done = 0
    while True:
        if order["items"] is None:
            await sleep(1)
        done += await _step(done, order["customer"])


async def resume(url: str, progress: Progress, *, rounds: int = 3000) -> Report:
    """Measure the CPU time of one resume, of a script and of a Python workflow, with a snapshot of about 1 KB."""
    del url  # no store is used
    progress(f"{rounds} resumes of each kind")
    with Meter() as meter:
        script, script_bytes = _measure(_flow(), rounds)
        python, python_bytes = _measure(_python(), rounds)
    return Report(
        "resume",
        "no store",
        1e6 / (percentile(script, 0.5) or 1),
        None,
        None,
        meter.cpu,
        meter.rss,
        {},
        {
            "script_us": percentile(script, 0.5),
            "script_us_p99": percentile(script, 0.99),
            "script_snapshot_bytes": script_bytes,
            "python_us": percentile(python, 0.5),
            "python_us_p99": percentile(python, 0.99),
            "python_snapshot_bytes": python_bytes,
        },
    )


Load = Callable[[bytes], Any]


def _measure(kind: tuple[bytes, Load], rounds: int) -> tuple[list[float], int]:
    """Return the microseconds of CPU per resume, and the size of the snapshot."""
    data, load = kind
    size = len(data)
    times: list[float] = []
    for _ in range(rounds):
        began = time.thread_time()
        machine = load(data)
        machine.resume({machine.awaiting.id: Ok(1)}, now=NOW)
        machine.take_effects()
        machine.reachable()
        data = machine.dumps()
        times.append((time.thread_time() - began) * 1e6)
    return times, size


def _order(padding: int) -> dict[str, Any]:
    items = [{"sku": f"A-{number:04}", "count": number, "cents": number * 250} for number in range(8)]
    return {"customer": "Ada Lovelace", "items": items, "note": "x" * padding}


def _of_size(start: Callable[[dict[str, Any]], Any]) -> bytes:
    """Return a snapshot of the requested size: the machine's own state, filled up with data."""
    needed = len(_snapshot(start(_order(0))))
    return _snapshot(start(_order(max(SNAPSHOT - needed, 0))))


def _snapshot(machine: Any) -> bytes:
    machine.take_effects()
    data: bytes = machine.dumps()
    return data


def _flow() -> tuple[bytes, Load]:
    program = compile_script(SCRIPT)
    data = _of_size(lambda order: Machine.start(program, {"order": order}, now=NOW))
    return data, lambda data: Machine.loads(program, data)


def _python() -> tuple[bytes, Load]:
    program = compile_workflow(workflow)
    data = _of_size(lambda order: PythonMachine.start(program, order, now=NOW))
    return data, lambda data: PythonMachine.loads(program, data)
