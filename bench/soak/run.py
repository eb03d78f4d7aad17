"""A soak on a private PostgreSQL: two workers, a scheduler and a generator as processes of their own, at half the peak.

    python -m bench.soak.run --seconds 1800
    python -m bench.soak.run --seconds 1800 --broker rabbitmq

``make soak-postgres`` and ``make soak-rabbitmq`` are the same. With a broker there are a server that is looked at by a
monitor, private brokers, and workers of others; on RabbitMQ a master reads all statuses and completions.

Ends with code 1 if anything was lost or has grown, or if a history is not exact. The plot goes to docs/images, all
samples to build/soak-postgres.json (soak-rabbitmq, soak-redis); a run that is too short to judge leaves the plot in
build/.
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
from urllib.error import URLError
from urllib.request import urlopen

import asyncpg

from bench.postgres.server import LOG_FILES, private_postgres
from bench.soak.brokers import Brokers, private_brokers
from bench.soak.master import Master
from bench.soak.plot import draw
from bench.soak.samples import TABLES, Sample, summary
from bench.soak.verdict import complaints, losses
from dalsegno import App
from dalsegno.bench.report import resident_mb
from dalsegno.testing.stored_histories import newest, problems_of
from tests.servers.process import HOST, die_with_parent, free_port

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"
IMAGES = ROOT / "docs" / "images"
EVERY = 5.0
WORKERS = 2
JUDGED_FROM = 300
"""Seconds. In less, retention and vacuum have not come round often enough to say anything."""
STARTS_WITHIN = 60.0
"""Seconds for the server."""
LONGEST_SEARCH = 60.0
STEADY_WITHIN = (0.9, 1.1)
"""Changes of the store's own speed that are not printed."""
READ = 2000
"""Executions of which the histories are checked at the end."""
LONGEST_KEPT = 60.0
"""Seconds for which ended executions are kept: the tables reach their size early."""


class Soak:
    """``processes``: those whose memory is looked at, by name."""

    def __init__(self, url: str, chosen: argparse.Namespace, brokers: Brokers) -> None:
        self.url = url
        self.chosen = chosen
        self.brokers = brokers
        self.master = Master()
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.samples: list[Sample] = []
        self._told: list[dict[str, Any]] = []
        self._speed = 0.0
        """Steps per second of the bare loop at the last look; 0 if there is none."""
        self._monitored = ""
        """URL of the server, where there is one."""

    async def run(self) -> dict[str, Any]:
        """What came of it, as ``verdict.complaints`` reads it."""
        async with AsyncExitStack() as stack:
            kept = max(min(LONGEST_KEPT, self.chosen.seconds / 10), 5)
            for number in range(1, WORKERS + 1):
                await self._start(stack, f"worker {number}", "worker", "--app", "bench.soak.work:app")
            await self._start(stack, "scheduler", "scheduler", f"--retention={kept:g}s")
            if self.brokers.redis is not None:
                await self._start_users_of_brokers(stack)
            connection = await asyncpg.connect(self.url)
            stack.push_async_callback(connection.close)
            generator = await self._generate(stack)
            head = await self._line(generator)
            self._speed = head["speed"] or 0.0
            found = "" if head["peak"] is None else f"{_peak_shown(head)}, now "
            print(f"{found}{head['rate']:.0f} executions/s for {self.chosen.seconds} s", flush=True)
            end = await self._watch(generator, connection)
            died = [name for name, each in self.processes.items() if each.returncode]
            if died:
                raise SystemExit(f"{', '.join(died)} died")
            end["left"] = await self.brokers.left()
        if self.brokers.rabbitmq is not None:
            end["told"] = {
                name: getattr(self.master, name) for name in ("statuses", "completions", "misplaced", "wrong")
            }
        return {**summary(self.samples, head["peak"], head["rate"]), **end, "deadlocks": 0}

    async def _start_users_of_brokers(self, stack: AsyncExitStack) -> None:
        port = free_port()
        self._monitored = f"http://{HOST}:{port}"
        await self._start(stack, "server", "server", "--no-worker", "--no-scheduler", "--port", str(port))
        await asyncio.to_thread(_wait_for, self._monitored)
        if self.brokers.rabbitmq is not None:
            await stack.enter_async_context(self.master.reading(self.brokers.rabbitmq.url))
        for name, words in self.brokers.foreign_workers.items():
            await self._spawn(stack, name, words, asyncio.subprocess.DEVNULL, asyncio.subprocess.DEVNULL)

    async def _start(self, stack: AsyncExitStack, name: str, *command: str) -> None:
        words = ["-m", "dalsegno", *command, "--store", self.url, "--quiet"]
        await self._spawn(stack, name, words, asyncio.subprocess.DEVNULL)

    async def _generate(self, stack: AsyncExitStack) -> asyncio.subprocess.Process:
        search = min(LONGEST_SEARCH, max(self.chosen.seconds / 5, 5))
        words = ["-m", "bench.soak.generator", self.url, str(self.chosen.seconds), str(search)]
        if self.chosen.rate:
            words.append(str(self.chosen.rate))
        else:
            print(f"looking for the peak, {search:.0f} s", flush=True)
        return await self._spawn(stack, "generator", words, asyncio.subprocess.PIPE)

    async def _spawn(
        self, stack: AsyncExitStack, name: str, words: list[str], output: int, errors: int | None = None
    ) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            cwd=ROOT,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env={**os.environ, **self.brokers.environment},
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
            if "speed" in told:
                self._note_pace(told)
                continue
            self._told.append(told)
            now = time.monotonic()
            if now - last >= EVERY:
                self.samples.append(await self._sample(connection, now - began, now - last))
                self._show(self.samples[-1])
                last = now
        return told

    def _note_pace(self, told: dict[str, Any]) -> None:
        change = told["speed"] / self._speed if self._speed else 1.0
        self._speed = told["speed"]
        if not STEADY_WITHIN[0] < change < STEADY_WITHIN[1]:
            print(
                f"the store alone makes {told['speed']:,.0f} steps/s now, {change:.2f} of before: "
                f"{told['rate']:.0f} executions/s from here on",
                flush=True,
            )

    async def _sample(self, connection: Any, at: float, seconds: float) -> Sample:
        told, self._told = self._told, []
        rows = await connection.fetch(TABLES)
        if self._monitored:
            await asyncio.to_thread(_scrape, self._monitored)
        pids = {name: process.pid for name, process in self.processes.items()} | self.brokers.pids
        return Sample(
            at,
            {name: resident_mb(pid) for name, pid in pids.items()},
            {row["name"]: {"mb": row["mb"], "dead": row["dead"], "live": row["live"]} for row in rows},
            sum(each["ended"] for each in told),
            sum(each["steps"] for each in told),
            seconds,
            os.getloadavg()[0],
            [latency for each in told for latency in each["latencies"]],
            await self.brokers.depths(),
            self._speed,
        )

    def _show(self, sample: Sample) -> None:
        if len(self.samples) % 12 == 1:
            workers = ", ".join(f"{name} {mb:.0f} MB" for name, mb in sample.rss.items())
            print(
                f"{sample.at:6.0f} s  {sample.ended / sample.seconds:6.1f} executions/s  {workers}",
                flush=True,
            )


def _peak_shown(head: dict[str, Any]) -> str:
    rounds = ", ".join(f"{rate:.0f}" for rate in head["rounds"])
    return f"peak {head['peak']:.0f} executions/s (rounds: {rounds}; the store alone {head['speed']:,.0f} steps/s)"


def _wait_for(server: str) -> None:
    until = time.monotonic() + STARTS_WITHIN
    while True:
        try:
            return _scrape(server)
        except URLError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def _scrape(server: str) -> None:
    """Read the metrics as a monitor does."""
    with urlopen(f"{server}/metrics", timeout=30) as reply:
        reply.read()


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
    made.add_argument(
        "--broker",
        choices=["rabbitmq", "redis"],
        default="",
        help="Brings the work; without it the store does.",
    )
    made.add_argument("--rate", type=float, default=None, help="Starts a second; without it half the peak.")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parser().parse_args(arguments)
    log_files = LOG_FILES if chosen.seconds >= JUDGED_FROM else 0
    with private_postgres(log_files) as server, private_brokers(chosen.broker) as brokers:
        soak = Soak(server.create_database("soak"), chosen, brokers)
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
    name = f"soak-{chosen.broker or 'postgres'}"
    (folder / f"{name}.json").write_text(json.dumps(data))
    (plots / f"{name}.svg").write_text(draw(samples, found, chosen.broker))
    print(json.dumps(found, indent=2))
    print(f"plot: {plots / f'{name}.svg'}")
    wrong = list(complaints(found) if judged else losses(found))
    if not judged:
        print(f"shorter than {JUDGED_FROM} s: nothing is judged but losses")
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"verdict: {_verdict(len(wrong), judged=judged)}")
    return 1 if wrong else 0


def _verdict(wrong: int, *, judged: bool) -> str:
    if wrong:
        return f"failed, {wrong} complaints"
    return "passed, nothing is lost and nothing grows" if judged else "passed, nothing is lost"


if __name__ == "__main__":
    sys.exit(main())
