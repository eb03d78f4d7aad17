"""The tasks of the demo. Each run leaves a line in a file, so that runs can be compared with what was committed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TypedDict

from dalsegno import App, NodeContext

app = App()


class Print(TypedDict):
    photo: str
    kilobytes: int


def note_run(ctx: NodeContext) -> None:
    """One line per run that began, in one write: whatever happens to this process afterwards, it is there."""
    notes = os.environ.get("DEMO_RUNS")
    if notes:
        with Path(notes).open("a") as file:
            file.write(f"{ctx.node_id} {ctx.idempotency_key} {os.getpid()}\n")


@app.task
async def list_photos(ctx: NodeContext, count: int) -> list[str]:
    note_run(ctx)
    await asyncio.sleep(0.3)
    return [f"IMG_{number:04}.jpg" for number in range(1, count + 1)]


@app.task
async def develop(ctx: NodeContext, photo: str) -> Print:
    """Work that takes its time, longer for some photos than for others."""
    note_run(ctx)
    weight = sum(photo.encode()) % 7
    await asyncio.sleep(0.8 + weight * 0.15)
    return {"photo": photo, "kilobytes": 180 + weight * 31}


@app.task
async def bind_album(ctx: NodeContext, prints: list[Print]) -> dict[str, int]:
    note_run(ctx)
    await asyncio.sleep(0.3)
    return {"photos": len(prints), "kilobytes": sum(each["kilobytes"] for each in prints)}
