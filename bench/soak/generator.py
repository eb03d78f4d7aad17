"""The generator: a process of its own that starts executions and waits for their results.

    python -m bench.soak.generator <store url> <seconds> <seconds to find the peak> [<starts a second>]

First as many as go, to find the peak, unless a rate is given; then half of that (or the given rate) for the given time,
open-loop: a start happens when it is due, whether or not those before it have ended. Every two minutes it waits until
nothing is in flight, looks how fast the store is by itself, and asks for less where that has become slower; at the end
it looks for the peak again. Says one JSON object a line: first the peak and the rate, then every second what has ended
and after each look the speed, at last the sum.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time

from bench.soak.pace import ROUNDS, ROUNDS_AT_END, Peak, find_peak, speed_of
from bench.soak.work import KINDS, NAP, Kind, deploy, mix
from dalsegno import App
from dalsegno.bench.workloads import application
from dalsegno.engine.process import run
from dalsegno.errors import DalSegnoError

AT_ONCE = 200
"""In flight while the peak is looked for."""
PATIENCE = 120.0
TELL_EVERY = 1.0
STRETCH = 120.0
"""Seconds between two looks at the speed of the store."""
LOOK = NAP + 3.0
"""Seconds that a look may take: what is in flight ends, and the bare loop runs. What it takes longer counts as time in
which the system did not keep up.
"""


class Generator:
    def __init__(self, app: App) -> None:
        self.app = app
        self.started = self.ended = self.steps = self.graphs = 0
        self.failures: list[str] = []
        self.latencies: list[float] = []
        """Milliseconds from start to result, without what was meant to be slept; of those not told yet."""
        self._kinds = itertools.cycle(mix())
        self._running: set[asyncio.Task[None]] = set()

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

    async def crowd(self, seconds: float) -> float:
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

    async def steady(self, seconds: float, rate: float, pace: Pace | None = None) -> float:
        """Start so many a second; return the seconds that this should have taken. With a ``pace`` the rate is what it
        says at each look.
        """
        planned, left = 0.0, seconds
        telling = asyncio.create_task(self._tell())
        while left > 0:
            stretch = left if pace is None or left < 1.5 * STRETCH else STRETCH
            await self._start_all(stretch, rate)
            left -= stretch
            planned += stretch
            if pace is not None and left > 0:
                began = time.perf_counter()
                await self._until_ended()
                rate = await pace.look()
                planned += min(time.perf_counter() - began, LOOK)
        await self._until_ended()
        telling.cancel()
        return planned

    async def _start_all(self, seconds: float, rate: float) -> None:
        began = time.perf_counter()
        for number in range(int(seconds * rate)):
            await asyncio.sleep(max(began + number / rate - time.perf_counter(), 0))
            task = asyncio.create_task(self.one())
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        await asyncio.sleep(max(began + seconds - time.perf_counter(), 0))

    async def _until_ended(self) -> None:
        if self._running:
            await asyncio.wait(self._running)

    async def _tell(self) -> None:
        ended, steps = self.ended, self.steps
        while True:
            await asyncio.sleep(TELL_EVERY)
            latencies, self.latencies = self.latencies, []
            say(ended=self.ended - ended, steps=self.steps - steps, latencies=latencies)
            ended, steps = self.ended, self.steps


class Pace:
    """What is asked of the system, by the speed of the store alone."""

    def __init__(self, url: str, peak: Peak) -> None:
        self.url = url
        self.peak = peak

    async def look(self) -> float:
        """Return the starts a second from now on."""
        speed = await speed_of(self.url)
        rate = self.peak.asked(speed)
        say(speed=speed, rate=rate)
        return rate


def say(**told: object) -> None:
    print(json.dumps(told), flush=True)


async def generate(url: str, seconds: float, search: float, rate: float | None) -> None:
    app = application(url)
    async with app.running(worker=False, scheduler=False):
        await deploy(app)
        generator = Generator(app)

        async def peak_of(rounds: int) -> Peak:
            return await find_peak(rounds, lambda: generator.crowd(search / ROUNDS), lambda: speed_of(url))

        peak = await peak_of(ROUNDS) if rate is None else None
        chosen = rate if peak is None else peak.asked(peak.speed)
        generator.latencies.clear()
        before = generator.started
        say(peak=peak and peak.rate, rate=chosen, speed=peak and peak.speed, rounds=peak and peak.rates)
        planned = await generator.steady(seconds, chosen, peak and Pace(url, peak))
        started = generator.started - before
        at_end = await peak_of(ROUNDS_AT_END) if peak is not None else None
        say(
            started=started,
            asked_executions_per_s=started / planned,
            graphs=generator.graphs,
            failures=generator.failures[:10],
            failed=len(generator.failures),
            peaks=[[each.rate, each.speed, each.per_step] for each in (peak, at_end) if each is not None],
        )


if __name__ == "__main__":
    store, lasting, searching, *given = sys.argv[1:]
    run(generate(store, float(lasting), float(searching), float(given[0]) if given else None))
