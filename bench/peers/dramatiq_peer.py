"""Dramatiq does the work. Runs in Dramatiq's environment: ``python dramatiq_peer.py WORKLOAD RESULTS SIZES``.

The worker imports this file too. Both find their servers by ``PEER_RESULTS`` and ``PEER_BROKER``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dramatiq
from dramatiq.broker import Broker
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend
from peer_report import Report, report

PATIENCE = 600_000
"""Milliseconds."""


def make_broker(url: str, results: str) -> Broker:
    """Messages are acknowledged after their actor has returned; those to RabbitMQ are persistent and confirmed."""
    is_rabbitmq = url.startswith("amqp")
    made: Broker = RabbitmqBroker(url=url, confirm_delivery=True) if is_rabbitmq else RedisBroker(url=url)
    made.add_middleware(Results(backend=RedisBackend(url=results)))
    return made


dramatiq.set_broker(make_broker(os.environ["PEER_BROKER"], os.environ["PEER_RESULTS"]))


@dramatiq.actor(store_results=True)
def step() -> dict[str, int]:
    return {"i": 1234}


@dramatiq.actor(store_results=True)
def part(item: int) -> int:
    return item


def chain(executions: int, steps: int) -> Report:
    def run(number: int) -> None:
        started = [
            dramatiq.pipeline(step.message_with_options(pipe_ignore=True) for _ in range(steps))
            for _ in range(number)
        ]
        for each in started:
            each.run()
        for each in started:
            each.get_result(block=True, timeout=PATIENCE)

    run(20)
    began = time.perf_counter()
    run(executions)
    return report(executions * steps / (time.perf_counter() - began))


def fanout(items: int, rounds: int) -> Report:
    def once() -> float:
        began = time.perf_counter()
        parts = dramatiq.group(part.message(item) for item in range(items)).run()
        counted = len(list(parts.get_results(block=True, timeout=PATIENCE)))
        if counted != items:
            raise RuntimeError(f"{counted} of {items} parts came back")
        return time.perf_counter() - began

    once()
    times = [once() for _ in range(rounds)]
    return report(items * rounds / sum(times), times)


def latency(rounds: int) -> Report:
    def once() -> float:
        began = time.perf_counter()
        step.send().get_result(block=True, timeout=PATIENCE)
        return time.perf_counter() - began

    for _ in range(20):
        once()
    times = [once() for _ in range(rounds)]
    return report(rounds / sum(times), times)


@contextmanager
def worker() -> Iterator[None]:
    """Its default: a process for each core, with eight threads each. The first result tells that it is there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dramatiq", "dramatiq_peer"], cwd=Path(__file__).parent, stdout=sys.stderr
    )
    try:
        step.send().get_result(block=True, timeout=60_000)
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def main(workload: str, sizes: str) -> None:
    with worker():
        measured = globals()[workload](**json.loads(sizes))
    print(json.dumps(measured), flush=True)


if __name__ == "__main__":
    # By its own name, so that there is one broker.
    from dramatiq_peer import main as run

    run(sys.argv[1], sys.argv[3])
