"""Celery does the work. Runs in Celery's environment: ``python celery_peer.py WORKLOAD RESULTS SIZES-AS-JSON``.

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
from typing import Any

from celery import Celery, chord
from celery import chain as chain_of
from peer_report import Report, report

PATIENCE = 600

app = Celery("celery_peer", broker=os.environ["PEER_BROKER"], backend=os.environ["PEER_RESULTS"])
if os.environ["PEER_BROKER"].startswith("amqp"):
    app.conf.broker_transport_options = {"confirm_publish": True}
app.conf.update(
    task_default_delivery_mode="persistent",
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    broker_connection_retry_on_startup=True,
)


@app.task
def step() -> dict[str, int]:
    return {"i": 1234}


@app.task
def part(item: int) -> int:
    return item


@app.task
def count(parts: list[int]) -> int:
    return len(parts)


def chain(executions: int, steps: int) -> Report:
    def start_all(number: int) -> list[Any]:
        return [chain_of(*(step.si() for _ in range(steps))).apply_async() for _ in range(number)]

    for result in start_all(20):
        result.get(timeout=PATIENCE)
    began = time.perf_counter()
    for result in start_all(executions):
        result.get(timeout=PATIENCE)
    return report(executions * steps / (time.perf_counter() - began))


def fanout(items: int, rounds: int) -> Report:
    def once() -> float:
        began = time.perf_counter()
        counted = (
            chord((part.s(item) for item in range(items)), count.s()).apply_async().get(timeout=PATIENCE)
        )
        if counted != items:
            raise RuntimeError(f"{counted} of {items} parts came back")
        return time.perf_counter() - began

    once()
    times = [once() for _ in range(rounds)]
    return report(items * rounds / sum(times), times)


def latency(rounds: int) -> Report:
    def once() -> float:
        began = time.perf_counter()
        step.delay().get(timeout=PATIENCE)
        return time.perf_counter() - began

    for _ in range(20):
        once()
    times = [once() for _ in range(rounds)]
    return report(rounds / sum(times), times)


@contextmanager
def worker() -> Iterator[None]:
    """One worker with its default pool: a process for each core. The first result tells that it is there."""
    options = ["--loglevel", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    process = subprocess.Popen(
        [sys.executable, "-m", "celery", "--app", "celery_peer", "worker", *options],
        cwd=Path(__file__).parent,
        stdout=sys.stderr,
    )
    try:
        step.delay().get(timeout=60)
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def main(workload: str, sizes: str) -> None:
    with worker():
        measured = globals()[workload](**json.loads(sizes))
    print(json.dumps(measured), flush=True)


if __name__ == "__main__":
    # By its own name, so that its tasks bear the names under which the worker knows them.
    from celery_peer import main as run

    run(sys.argv[1], sys.argv[3])
