"""What it costs to go on with a stored machine: load, run to the next await, store. No store and no engine."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dalsegno.bench.report import Meter, Report, percentile
from dalsegno.bench.workloads import Progress
from dalsegno.lang import Machine, Ok
from dalsegno.lang import compile as compile_script
from dalsegno.lang.python import DurableTask, PythonMachine, compile_workflow, sleep

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
    """CPU of one resume, of a script and of a Python workflow, with a snapshot of about 1 KB."""
    del url  # nothing is stored
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
    """Microseconds of CPU per resume, and how large the snapshot is."""
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
    """A snapshot of the size asked for: what the machine needs itself is filled up with data."""
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
