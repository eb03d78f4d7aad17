"""What watching costs: the chain with nobody watching, with the server's meter, and with traces that go nowhere.

    python bench/observing.py

CPU seconds per step, in turns within one process, so that other load on the machine matters little.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from dalsegno.bench import workloads as documents
from dalsegno.bench.workloads import application, timed
from dalsegno.engine.tracing import Tracing
from dalsegno.server.operations.metrics import Meter

ROUNDS, EXECUTIONS, STEPS = 12, 200, 10
WATCHERS = ("nobody", "meter", "traces")


async def measure(folder: str) -> dict[str, list[float]]:
    app = application(f"sqlite:///{Path(folder) / 'observing.db'}")
    found: dict[str, list[float]] = {name: [] for name in WATCHERS}
    async with app.running():
        definition = await app.adeploy(documents.chain_document(STEPS))
        watchers = {"nobody": None, "meter": Meter(), "traces": Tracing(app.client.stack.archive)}
        watchers["meter"].engine = app.engine
        for turn in range(ROUNDS + 1):
            for name, watcher in watchers.items():
                app.engine.observer = app.engine.committer.observer = app.engine.worker.observer = watcher
                began = time.process_time()
                await asyncio.gather(*(timed(app.astart(definition.name), 600) for _ in range(EXECUTIONS)))
                if turn:
                    found[name].append((time.process_time() - began) / EXECUTIONS / STEPS * 1e6)
        app.engine.observer = app.engine.committer.observer = app.engine.worker.observer = None
    return found


def main() -> None:
    trace.set_tracer_provider(TracerProvider())
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(folder))
    base = statistics.median(found["nobody"])
    for name, each in found.items():
        middle = statistics.median(each)
        print(f"{name:8} {middle:6.1f} µs of CPU per step  {100 * (middle / base - 1):+5.1f} %")


if __name__ == "__main__":
    main()
