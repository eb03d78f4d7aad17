"""What is run for half an hour: chains, fan-outs, scripts and timers. ``--app bench.soak.work:app`` serves them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dalsegno import App
from dalsegno.bench import workloads as documents
from dalsegno.bench.workloads import CHAIN as SCRIPT
from dalsegno.bench.workloads import application
from dalsegno.wiring import BROKER_VARIABLE

CHAIN_STEPS = 10
SCRIPT_TASKS = 5
FAN = 20
NAP = 2.0
SCRIPT_NAME = "bench_script"
CHAIN, FAN_OUT, SLEEPER = (
    documents.chain_document(CHAIN_STEPS),
    documents.fan_out("soak-fanout"),
    documents.sleeper(),
)

FOREIGN = "images"
"""The queue of workers of others, where there is a broker."""
RESIZE = {
    "name": "soak-resize",
    "nodes": [
        {
            "id": "resize",
            "type": "task",
            "queue": FOREIGN,
            "parameters": {"task": "resize", "input": {"file": "a.png", "tenths": 0}},
        }
    ],
    "edges": [],
}

app = application("memory:", concurrency=100)
"""Its store is the one that the worker is given."""


@app.task(name="woke")
async def woke(until: float) -> None:
    """What comes after a nap."""


@dataclass(frozen=True, slots=True)
class Kind:
    workflow: str
    steps: int
    payload: Callable[[], dict[str, Any]]
    nap: float = 0.0
    """Seconds of its time that it is meant to sleep."""
    is_graph: bool = True
    """It has a completion on RabbitMQ."""


KINDS = {
    "chain": Kind(CHAIN["name"], CHAIN_STEPS, dict),
    "fanout": Kind(FAN_OUT["name"], FAN + 2, lambda: {"items": list(range(FAN))}),
    "script": Kind(SCRIPT_NAME, SCRIPT_TASKS, lambda: {"steps": SCRIPT_TASKS}, is_graph=False),
    "timer": Kind(SLEEPER["name"], 2, lambda: {"until": time.time() + NAP}, NAP),
    "foreign": Kind(RESIZE["name"], 1, dict),
}
MIX = ("chain", "script", "chain", "timer", "chain", "script", "fanout", "chain", "script", "chain")
"""One after the other, and again."""


def mix() -> tuple[str, ...]:
    """Where there is a broker, programs of others do a part."""
    return (*MIX, "foreign") if os.environ.get(BROKER_VARIABLE) else MIX


async def deploy(client: App) -> None:
    for document in (CHAIN, FAN_OUT, SLEEPER, RESIZE):
        await client.adeploy(document)
    await client.adeploy_script(SCRIPT)
