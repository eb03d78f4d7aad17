"""A soak on a private PostgreSQL: two workers, a scheduler and a generator as processes of their own, at half the peak.

    python -m bench.soak.run --seconds 1800

``make soak-postgres`` is the same. Ends with code 1 if anything was lost or has grown, or if a history is not exact.
The plot goes to docs/images, all samples to build/soak-postgres.json; a run that is too short to judge leaves the plot
in build/.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import asyncpg

from bench.postgres.server import LOG_FILES, private_postgres
from bench.soak.plot import draw
from bench.soak.samples import TABLES, Sample, summary
from bench.soak.verdict import complaints
from dalsegno import App
from dalsegno.bench.report import resident_mb
from dalsegno.testing.stored_histories import newest, problems_of
from tests.servers.process import die_with_parent

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"
IMAGES = ROOT / "docs" / "images"
PLOT = "soak-postgres.svg"
EVERY = 5.0
WORKERS = 2
JUDGED_FROM = 300
"""Seconds. In less, retention and vacuum have not come round often enough to say anything."""
LONGEST_SEARCH = 60.0
READ = 2000
"""Executions of which the histories are checked at the end."""
LONGEST_KEPT = 60.0
"""Seconds for which ended executions are kept: the tables reach their size early."""


class Soak:
    """``processes``: those whose memory is looked at, by name."""

    def __init__(self, url: str, chosen: argparse.Namespace) -> None:
        self.url = url
        self.chosen = chosen
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.samples: list[Sample] = []
        self._told: list[dict[str, Any]] = []

    async def run(self) -> dict[str, Any]:
        """What came of it, as ``verdict.complaints`` reads it."""
        async with AsyncExitStack() as stack:
            kept = max(min(LONGEST_KEPT, self.chosen.seconds / 10), 5)
            for number in range(1, WORKERS + 1):
                await self._start(stack, f"worker {number}", "worker", "--app", "bench.soak.work:app")
            await self._start(stack, "scheduler", "scheduler", f"--retention={kept:g}s")
            connection = await asyncpg.connect(self.url)
            stack.push_async_callback(connection.close)
            generator = await self._generate(stack)
            head = await self._line(generator)
            print(f"peak {head['peak']:.0f} executions/s, now {head['rate']:.0f} for {self.chosen.seconds} s")
            end = await self._watch(generator, connection)
            died = [name for name, each in self.processes.items() if each.returncode]
            if died:
                raise SystemExit(f"{', '.join(died)} died")
        return {**summary(self.samples, head["peak"], head["rate"]), **end, "deadlocks": 0}

    async def _start(self, stack: AsyncExitStack, name: str, *command: str) -> None:
        words = ["-m", "dalsegno", *command, "--store", self.url, "--quiet"]
        await self._spawn(stack, name, words, asyncio.subprocess.DEVNULL)

    async def _generate(self, stack: AsyncExitStack) -> asyncio.subprocess.Process:
        search = min(LONGEST_SEARCH, max(self.chosen.seconds / 5, 5))
        words = ["-m", "bench.soak.generator", self.url, str(self.chosen.seconds), str(search)]
        if self.chosen.rate:
            words.append(str(self.chosen.rate))
        print(f"looking for the peak, {search:.0f} s")
        return await self._spawn(stack, "generator", words, asyncio.subprocess.PIPE)

    async def _spawn(
        self, stack: AsyncExitStack, name: str, words: list[str], output: int
    ) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            cwd=ROOT,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            limit=2**24,
            preexec_fn=die_with_parent,
        )
        self.processes[name] = process
        stack.push_async_callback(_end, process)
        return process

    async def _line(self, generator: asyncio.subprocess.Process) -> dict[str, Any]:
        assert generator.stdout is not None
        line = await generator.stdout.readline()
        if not line:
            raise SystemExit(f"the generator ended with code {await generator.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    async def _watch(self, generator: asyncio.subprocess.Process, connection: Any) -> dict[str, Any]:
        """A sample every few seconds until the generator has said its last."""
        began = last = time.monotonic()
        while "started" not in (told := await self._line(generator)):
            self._told.append(told)
            now = time.monotonic()
            if now - last >= EVERY:
                self.samples.append(await self._sample(connection, now - began, now - last))
                self._show(self.samples[-1])
                last = now
        return told

    async def _sample(self, connection: Any, at: float, seconds: float) -> Sample:
        told, self._told = self._told, []
        rows = await connection.fetch(TABLES)
        return Sample(
            at,
            {name: resident_mb(process.pid) for name, process in self.processes.items()},
            {row["name"]: {"mb": row["mb"], "dead": row["dead"], "live": row["live"]} for row in rows},
            sum(each["ended"] for each in told),
            sum(each["steps"] for each in told),
            seconds,
            os.getloadavg()[0],
            [latency for each in told for latency in each["latencies"]],
        )

    def _show(self, sample: Sample) -> None:
        if len(self.samples) % 12 == 1:
            workers = ", ".join(f"{name} {mb:.0f} MB" for name, mb in sample.rss.items())
            print(
                f"{sample.at:6.0f} s  {sample.ended / sample.seconds:6.1f} executions/s  {workers}",
                flush=True,
            )


def inexact_histories(url: str) -> list[str]:
    """Of the newest executions, which nothing removes before they are read."""
    app = App(url)
    try:
        return app.host.call(problems_of(app.client, app.host.call(newest(app.client, READ)).values()))
    finally:
        app.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(30):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="bench.soak.run", description=__doc__)
    made.add_argument("--seconds", type=int, default=1800, help="How long, after the peak was found.")
    made.add_argument("--into", type=Path, default=None, help="Folder for plot and samples.")
    made.add_argument("--rate", type=float, default=None, help="Starts a second; without it half the peak.")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parser().parse_args(arguments)
    with private_postgres(LOG_FILES if chosen.seconds >= JUDGED_FROM else 0) as server:
        soak = Soak(server.create_database("soak"), chosen)
        found = asyncio.run(soak.run())
        found["inexact"] = inexact_histories(soak.url)
        found["deadlocks"] = server.log_text().count("deadlock detected")
    return report(chosen, soak.samples, found)


def report(chosen: argparse.Namespace, samples: list[Sample], found: dict[str, Any]) -> int:
    judged = chosen.seconds >= JUDGED_FROM
    folder = chosen.into or BUILD
    plots = chosen.into or (IMAGES if judged else BUILD)
    for each in (folder, plots):
        each.mkdir(parents=True, exist_ok=True)
    data = {"found": found, "samples": [asdict(sample) for sample in samples]}
    (folder / "soak-postgres.json").write_text(json.dumps(data))
    (plots / PLOT).write_text(draw(samples, found))
    print(json.dumps(found, indent=2))
    print(f"plot: {plots / PLOT}")
    if not judged:
        print(f"shorter than {JUDGED_FROM} s: nothing is judged but losses")
        return 1 if found["failed"] or found["deadlocks"] else 0
    wrong = list(complaints(found))
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
