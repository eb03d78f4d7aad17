"""Workflows in Python and scripts whose tasks leave a mark for every attempt, by idempotency key."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path

from dalsegno import App, NodeContext, gather, sleep
from dalsegno.engine.settings import EngineSettings
from dalsegno.wiring import sqlite_path

app = App("memory:")

ROUNDS, WIDTH = 5, 10
STEPS = ROUNDS * WIDTH
MOMENT = 0.008
"""Seconds that a task takes."""

FAN_OUT = f"""
workflow fan_out(inputs) {{
  let total = inputs.base
  for (let round = 0; round < {ROUNDS}; round++) {{
    let batch = []
    for (let place = 0; place < {WIDTH}; place++) {{
      batch.push(Task.run("step", round * {WIDTH} + place))
    }}
    for (let number of await Task.all(batch)) {{ total += number }}
  }}
  return total
}}
"""


@app.task
async def step(ctx: NodeContext, number: int) -> int:
    _mark(ctx.idempotency_key)
    await asyncio.sleep(MOMENT)
    return number * 2


@app.workflow
async def fifty_steps(base: int) -> int:
    total = base
    for number in range(STEPS):
        total += await step(number)
        if number == STEPS // 2:
            await sleep(0.05)
    return total


@app.workflow
async def in_rounds(base: int) -> int:
    total = base
    for turn in range(ROUNDS):
        total += sum(await gather(*[step(turn * WIDTH + place) for place in range(WIDTH)]))
    return total


def expected(base: int) -> int:
    return base + sum(number * 2 for number in range(STEPS))


# -- marks --------------------------------------------------------------------------------------------------------


def marks_beside(url: str) -> Path:
    return sqlite_path(url).with_name("marks")


def _mark(key: str) -> None:
    """One write of one line at the end of a file: whole, or not at all."""
    mark = os.open(marks_beside(app.url), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(mark, f"{key}\n".encode())
    os.close(mark)


def attempts(url: str) -> Counter[str]:
    """How often each task was begun, by idempotency key."""
    path = marks_beside(url)
    return Counter(path.read_text().split()) if path.exists() else Counter()


# -- for the processes --------------------------------------------------------------------------------------------


def prepare() -> None:
    """Everything was compiled when this module was imported."""


def application(url: str, settings: EngineSettings) -> App:
    app.url, app.settings = url, settings
    return app
