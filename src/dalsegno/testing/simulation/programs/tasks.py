"""The task of simulated programs: a pure function of its input, after a delay, or a programmed failure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from zlib import crc32

import msgspec

from dalsegno.engine.steps.tasks import Tasks
from dalsegno.ports.node import NodeContext, NodeError

NAME = "work"


def work_result(site: int, given: Any, pad: int) -> Any:
    """Return a small number that depends on all inputs; with ``pad``, a long text beside it."""
    number = crc32(msgspec.json.encode([site, given], order="sorted")) % 9973
    return {"n": number, "pad": "x" * pad} if pad else number


class SimulatedTasks(Tasks):
    """No threads: turns of Python workflows run on the simulated loop."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts: list[tuple[str, int]] = []
        """Idempotency key and number of each started attempt."""

    async def run(self, name: str, payload: Any, ctx: NodeContext) -> Any:
        if name != NAME:
            raise NodeError(f"there is no task '{name}' here", code="TASK_NOT_FOUND", retryable=False)
        self.attempts.append((ctx.idempotency_key, ctx.attempt))
        if payload.get("seconds"):
            await asyncio.sleep(payload["seconds"])
        if ctx.attempt <= payload.get("fails", 0):
            site = payload["site"]
            raise NodeError(f"programmed failure at {site}", code=f"W{site}")
        return work_result(payload["site"], payload["v"], int(payload.get("pad", 0)))

    async def call(self, work: Callable[[], None]) -> None:
        """Run at once: a turn reads the clock before and after, and the replay knows only one of the two times."""
        work()

    async def close(self) -> None:
        """Do nothing: all processes share it."""
