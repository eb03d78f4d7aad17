"""The figures of Redis and RabbitMQ as brokers, on private servers, in about ten minutes on a machine at rest.

    python -m bench.brokers.run
    python -m bench.brokers.run chain latency --repeat 3

``make bench-brokers`` is the same. Stacks take turns, so that a busy moment is not one's alone. Ratios are to
PostgreSQL without a broker.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from redis import Redis

from bench.peers.servers import Servers
from bench.soak.master import Master
from dalsegno.adapters.rabbitmq.amqp.address import parse_address
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.topology import EXECUTION
from dalsegno.wiring import BROKER_VARIABLE, REDIS_VARIABLE
from tests.servers.process import free_port
from tests.servers.rabbitmq import RabbitServer
from tests.servers.workspace import Workspace

ROOT = Path(__file__).parents[2]
STEPS = 10
PLANTED = (10_000, 100_000, 1_000_000)
IDLE_AFTER, IDLE_SECONDS = 8.0, 10.0
LOOK_EVERY = 0.05

Figures = dict[str, Any]


class Stacks:
    """Runs ``dalsegno bench`` on an empty database and empty brokers each time."""

    def __init__(self, servers: Servers, repeat: int, part: float) -> None:
        """``part``: of the usual numbers of executions, rounds, items and timers."""
        self.servers = servers
        self.repeat = repeat
        self.executions, self.rounds, self.items = (max(int(part * each), 10) for each in (500, 300, 10_000))
        self.planted = [int(part * each) for each in PLANTED]

    def broker(self, name: str) -> str:
        makers: dict[str, Callable[[], str]] = {
            "postgres": str,
            "redis": self.servers.redis,
            "rabbitmq": self.servers.rabbitmq,
        }
        return makers[name]()

    def bench(self, broker: str, workload: str, **options: int) -> Figures:
        given = [f"--{name}={value}" for name, value in options.items()]
        words = ["-m", "dalsegno", "bench", workload, "--json", "--store", self.servers.postgres(), *given]
        done = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env={**os.environ, **({BROKER_VARIABLE: broker} if broker else {})},
            stdout=subprocess.PIPE,
            check=True,
        )
        found: Figures = json.loads(done.stdout)
        return found

    def in_turn(self, names: Sequence[str], workload: str, **options: int) -> Iterator[tuple[str, Figures]]:
        """Yield the median of each stack."""
        found: dict[str, list[Figures]] = {name: [] for name in names}
        for _ in range(self.repeat):
            for name in names:
                found[name].append(self.bench(self.broker(name), workload, **options))
        for name, each in found.items():
            yield (
                name,
                {
                    key: median(run[key] for run in each)
                    for key in ("steps_per_s", "p50_ms", "p99_ms", "cpu_s")
                },
            )


NAMES = ("postgres", "redis", "rabbitmq")


def chain(stacks: Stacks) -> None:
    bare = 0.0
    for name, found in stacks.in_turn(NAMES, "chain", executions=stacks.executions, steps=STEPS):
        bare = bare or found["steps_per_s"]
        cpu = found["cpu_s"] / stacks.executions / STEPS * 1e6
        tell(f"chain, {name}", f"{rate(found, bare)}, {cpu:.0f} µs of CPU per step")
    found, statuses = with_master(stacks)
    tell("chain, rabbitmq with a master", f"{rate(found, bare)}; it read {statuses:,} statuses")
    for processes in (2, 4):
        bare = 0.0
        options = {"executions": stacks.executions, "steps": STEPS, "processes": processes}
        for name, found in stacks.in_turn(NAMES, "chain", **options):
            bare = bare or found["steps_per_s"]
            tell(f"chain, {name}, {processes} processes", rate(found, bare))


def with_master(stacks: Stacks) -> tuple[Figures, int]:
    """Return the median run beside a master that reads everything, and what it read in that run."""
    runs = []
    for _ in range(stacks.repeat):
        url = stacks.servers.rabbitmq()
        with reading(url) as master:
            found = stacks.bench(url, "chain", executions=stacks.executions, steps=STEPS)
            time.sleep(1)
        runs.append((found, master.statuses))
    return sorted(runs, key=lambda run: run[0]["steps_per_s"])[len(runs) // 2]


def latency(stacks: Stacks) -> None:
    for name, found in stacks.in_turn(NAMES, "latency", rounds=stacks.rounds):
        tell(f"one step, {name}", f"p50 {found['p50_ms']:.1f} ms, p99 {found['p99_ms']:.1f} ms")
    for name, found in stacks.in_turn(NAMES, "latency", rounds=stacks.rounds, processes=1):
        tell(
            f"one step in another process, {name}",
            f"p50 {found['p50_ms']:.1f} ms, p99 {found['p99_ms']:.1f} ms",
        )


def split(stacks: Stacks) -> None:
    for items in (stacks.items // 10, stacks.items):
        url = stacks.servers.rabbitmq()
        with watched_depth(url) as depths:
            found = stacks.bench(url, "split100k", items=items)
        memory = found["details"]["rss_growth_mb"]
        tell(
            f"split of {items:,}, rabbitmq",
            f"{rate(found)}, queue depth at most {max(depths)}, memory grew by {memory:.0f} MB",
        )


def timers(stacks: Stacks) -> None:
    words = ["bench/planted_timers.py", stacks.servers.redis(), "--planted", *map(str, stacks.planted)]
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True)


def idle(_: Stacks) -> None:
    """One process with all roles, and another worker beside it, with nothing to do."""
    with Servers() as servers, ExitStack() as running:
        workspace = Workspace()
        running.callback(workspace.remove)
        rabbitmq = running.enter_context(RabbitServer(workspace.new_folder("rabbitmq")))
        redis = Redis.from_url(servers.redis())
        running.callback(redis.close)
        environment = {BROKER_VARIABLE: rabbitmq.url, REDIS_VARIABLE: servers.redis()}
        store = servers.postgres()
        for what, words in (
            ("one process", ("server", "--port", str(free_port()))),
            ("and a worker", ("worker",)),
        ):
            running.enter_context(process((*words, "--store", store, "--quiet"), environment))
            time.sleep(IDLE_AFTER)
            before = commands(redis), packets(rabbitmq)
            time.sleep(IDLE_SECONDS)
            after = commands(redis) - 1, packets(rabbitmq)
            rates = [(now - then) / IDLE_SECONDS for now, then in zip(after, before, strict=True)]
            tell(f"idle, {what}", f"{rates[0]:.1f} commands/s to Redis, {rates[1]:.1f} packets/s to RabbitMQ")


def commands(redis: Redis) -> int:
    return int(redis.info("stats")["total_commands_processed"])


def packets(rabbitmq: RabbitServer) -> int:
    """Return how many packets all connections have sent to RabbitMQ."""
    value = rabbitmq.evaluate(
        "lists:sum([proplists:get_value(recv_cnt, rabbit_networking:connection_info(P, [recv_cnt])) "
        "|| P <- rabbit_networking:connections()])"
    )
    return int(value)


@contextmanager
def process(words: Sequence[str], environment: Mapping[str, str]) -> Iterator[None]:
    started = subprocess.Popen(
        [sys.executable, "-m", "dalsegno", *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        started.terminate()
        started.wait()


@contextmanager
def reading(url: str) -> Iterator[Master]:
    """A master that reads everything, in a thread."""
    master, ended = Master(), threading.Event()

    async def read() -> None:
        async with master.reading(url):
            await asyncio.to_thread(ended.wait)

    with in_thread(read, ended):
        yield master


@contextmanager
def watched_depth(url: str) -> Iterator[list[int]]:
    """Collect the depths of the queue of the nodes."""
    depths, ended = [0], threading.Event()

    async def watch() -> None:
        async with Master().reading(url):
            connection = await Connection.open(parse_address(url))
            channel = await connection.channel()
            while not ended.is_set():
                depths.append((await channel.depth(EXECUTION))[0])
                await asyncio.sleep(LOOK_EVERY)
            await connection.close()

    with in_thread(watch, ended):
        yield depths


@contextmanager
def in_thread(work: Callable[[], Any], ended: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=lambda: asyncio.run(work()), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(30)


def rate(found: Figures, bare: float = 0.0) -> str:
    of = f" ({found['steps_per_s'] / bare:.2f})" if bare else ""
    return f"{found['steps_per_s']:,.0f} steps/s{of}"


def tell(what: str, figure: str) -> None:
    print(f"{what:40} {figure}", flush=True)


PARTS = {"chain": chain, "latency": latency, "split": split, "timers": timers, "idle": idle}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.brokers.run", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=list(PARTS), help="All without any.", metavar="PART")
    parser.add_argument(
        "--repeat", type=int, default=3, help="Turns of chain and latency; the median counts."
    )
    parser.add_argument("--part", type=float, default=1.0, help="Of the usual numbers, for a quick look.")
    chosen = parser.parse_args(arguments)
    tell("load before", f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with Servers() as servers:
        for name in chosen.parts or PARTS:
            PARTS[name](Stacks(servers, chosen.repeat, chosen.part))
    return 0


if __name__ == "__main__":
    sys.exit(main())
