"""The memory budget of a process: how many bytes the steps that hold much of it may hold together.

Nearly every step needs a few kilobytes and asks for nothing. A step that is about to load, compute or keep large values
claims its whole allowance at once and holds it until its commit is done:

* Steps wait for a claim while the budget is used up. Workflows take turns, so one of them cannot keep the others out.
* A step claims once. It never waits for more while it holds something, so claims cannot block each other for good.
* A claim larger than the budget is granted when nothing else is held.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from contextvars import ContextVar
from typing import TypeAlias

Claim: TypeAlias = tuple[int, "asyncio.Future[None]"]

LIGHT = 1024 * 1024
"""Bytes that a step may hold without a claim."""


class MemoryBudget:
    def __init__(self, total: int) -> None:
        self.total = total
        self.held = 0
        self._waiting: OrderedDict[str, deque[Claim]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Steps that wait for a claim."""
        return sum(map(len, self._waiting.values()))

    async def claim(self, size: int, workflow: str) -> int:
        """Wait until ``size`` bytes are free, and hold them. Returns what is held: at most the whole budget."""
        size = min(size, self.total)
        if not self._waiting and self.held + size <= self.total:
            self.held += size
            return size
        granted = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(workflow, deque()).append((size, granted))
        try:
            await granted
        except asyncio.CancelledError:
            self._withdraw(workflow, size, granted)
            raise
        return size

    def release(self, size: int) -> None:
        self.held -= size
        self._grant()

    def _withdraw(self, workflow: str, size: int, granted: asyncio.Future[None]) -> None:
        if granted.done() and not granted.cancelled():
            self.release(size)
            return
        line = self._waiting[workflow]
        line.remove((size, granted))
        if not line:
            del self._waiting[workflow]
        self._grant()

    def _grant(self) -> None:
        """To the workflow whose turn it is; a claim that does not fit yet keeps its turn."""
        while self._waiting:
            workflow, line = next(iter(self._waiting.items()))
            size, granted = line[0]
            if self.held + size > self.total:
                return
            line.popleft()
            del self._waiting[workflow]
            if line:
                self._waiting[workflow] = line
            self.held += size
            granted.set_result(None)


class StepMemory:
    """What one step holds."""

    __slots__ = ("_budget", "_held")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._held = 0

    @property
    def is_heavy(self) -> bool:
        return self._held > 0

    async def claim(self, size: int, workflow: str) -> None:
        if not self._held:
            self._held = await self._budget.claim(size, workflow)

    def release(self) -> None:
        if self._held:
            held, self._held = self._held, 0
            self._budget.release(held)


step_memory: ContextVar[StepMemory | None] = ContextVar("dalsegno-step-memory", default=None)
"""Of the step that runs in this task; None outside of a worker."""


async def claim_memory(size: int, workflow: str) -> None:
    """For the step that runs in this task. It returns at once where the step holds its allowance, or there is none."""
    memory = step_memory.get()
    if memory is not None and not memory.is_heavy:
        await memory.claim(size, workflow)
