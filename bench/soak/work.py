"""What is run for half an hour: chains, fan-outs, scripts and timers. ``--app bench.soak.work:app`` serves them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dalsegno import App
from dalsegno.bench import workloads as documents
from dalsegno.bench.scripts import CHAIN as SCRIPT
from dalsegno.bench.workloads import application

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


KINDS = {
    "chain": Kind(CHAIN["name"], CHAIN_STEPS, dict),
    "fanout": Kind(FAN_OUT["name"], FAN + 2, lambda: {"items": list(range(FAN))}),
    "script": Kind(SCRIPT_NAME, SCRIPT_TASKS, lambda: {"steps": SCRIPT_TASKS}),
    "timer": Kind(SLEEPER["name"], 2, lambda: {"until": time.time() + NAP}, NAP),
}
MIX = ("chain", "script", "chain", "timer", "chain", "script", "fanout", "chain", "script", "chain")
"""One after the other, and again."""


async def deploy(client: App) -> None:
    for document in (CHAIN, FAN_OUT, SLEEPER):
        await client.adeploy(document)
    await client.adeploy_script(SCRIPT)
