"""The generator: a process of its own that starts executions and waits for their results.

    python -m bench.soak.generator <store url> <seconds> <seconds to find the peak> [<starts a second>]

First as many as go, to find the peak, unless a rate is given; then half of that (or the given rate) for the given time,
open-loop: a start happens when it is due, whether or not those before it have ended. Says one JSON object a line: first
the peak and the rate, then every second what has ended, at last the sum.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time

from bench.soak.work import KINDS, Kind, deploy, mix
from dalsegno import App
from dalsegno.bench.workloads import application
from dalsegno.engine.process import run
from dalsegno.errors import DalSegnoError

AT_ONCE = 200
"""In flight while the peak is looked for."""
PATIENCE = 120.0
TELL_EVERY = 1.0


class Generator:
    def __init__(self, app: App) -> None:
        self.app = app
        self.started = self.ended = self.steps = self.graphs = 0
        self.failures: list[str] = []
        self.latencies: list[float] = []
        """Milliseconds from start to result, without what was meant to be slept; of those not told yet."""
        self._kinds = itertools.cycle(mix())

    async def one(self) -> None:
        kind = KINDS[next(self._kinds)]
        self.started += 1
        self.graphs += kind.is_graph
        began = time.perf_counter()
        try:
            await self._run(kind)
        except (DalSegnoError, TimeoutError) as error:  # told at the end: one must not hide the others
            self.failures.append(f"{kind.workflow}: {type(error).__name__}: {error}")
            return
        self.latencies.append(round((time.perf_counter() - began - kind.nap) * 1000, 2))
        self.ended += 1
        self.steps += kind.steps

    async def _run(self, kind: Kind) -> None:
        handle = await self.app.astart(kind.workflow, kind.payload())
        await handle.aresult(PATIENCE)

    async def peak(self, seconds: float) -> float:
        """Executions a second with as many in flight as go; the first third of the time is for warming up."""
        until = time.perf_counter() + seconds

        async def again() -> None:
            while time.perf_counter() < until:
                await self.one()

        crowd = asyncio.gather(*(again() for _ in range(AT_ONCE)))
        await asyncio.sleep(seconds / 3)
        ended, began = self.ended, time.perf_counter()
        await asyncio.sleep(until - began)
        found = (self.ended - ended) / (time.perf_counter() - began)
        await crowd
        return found

    async def steady(self, seconds: float, rate: float) -> None:
        began = time.perf_counter()
        running: set[asyncio.Task[None]] = set()
        telling = asyncio.create_task(self._tell())
        for number in range(int(seconds * rate)):
            await asyncio.sleep(max(began + number / rate - time.perf_counter(), 0))
            task = asyncio.create_task(self.one())
            running.add(task)
            task.add_done_callback(running.discard)
        if running:
            await asyncio.wait(running)
        telling.cancel()

    async def _tell(self) -> None:
        ended, steps = self.ended, self.steps
        while True:
            await asyncio.sleep(TELL_EVERY)
            latencies, self.latencies = self.latencies, []
            say(ended=self.ended - ended, steps=self.steps - steps, latencies=latencies)
            ended, steps = self.ended, self.steps


def say(**told: object) -> None:
    print(json.dumps(told), flush=True)


async def generate(url: str, seconds: float, search: float, rate: float | None) -> None:
    app = application(url)
    async with app.running(worker=False, scheduler=False):
        await deploy(app)
        generator = Generator(app)
        peak = await generator.peak(search) if rate is None else None
        chosen = rate if peak is None else peak / 2
        generator.latencies.clear()
        before = generator.started
        say(peak=peak, rate=chosen)
        await generator.steady(seconds, chosen)
        say(
            started=generator.started - before,
            graphs=generator.graphs,
            failures=generator.failures[:10],
            failed=len(generator.failures),
        )


if __name__ == "__main__":
    store, lasting, searching, *given = sys.argv[1:]
    run(generate(store, float(lasting), float(searching), float(given[0]) if given else None))
