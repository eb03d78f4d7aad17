"""The memory budget of a process: how many bytes the steps that hold much of it may hold together.

Nearly every step needs a few kilobytes and asks for nothing. A step that is about to load, compute or keep large values
claims its whole allowance at once and holds it until its commit is done:

* Steps wait for a claim while the budget is used up. Workflows take turns, so one of them cannot keep the others out.
* A step that needs more than it holds gives that back and claims the larger size anew. It never waits while it holds
  something, so claims cannot block each other for good.
* A claim larger than the budget is granted when nothing else is held.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Claim: TypeAlias = tuple[int, "asyncio.Future[None]"]

TOTAL = 128 * 1024 * 1024
"""Bytes of the budget, unless the settings say otherwise."""
LIGHT = 1024 * 1024
"""Bytes that a step may hold without a claim."""
DECODED = 4
"""How many times larger a value is in memory than its JSON, as a rule."""


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
        line = self._waiting.get(workflow)
        if line is not None and (size, granted) in line:  # else it was passed over already
            line.remove((size, granted))
            if not line:
                del self._waiting[workflow]
        self._grant()

    def _grant(self) -> None:
        """To the workflow whose turn it is; a claim that does not fit yet keeps its turn."""
        while self._waiting:
            workflow, line = next(iter(self._waiting.items()))
            size, granted = line[0]
            is_wanted = not granted.done()  # a cancelled claim has not withdrawn yet
            if is_wanted and self.held + size > self.total:
                return
            line.popleft()
            del self._waiting[workflow]
            if line:
                self._waiting[workflow] = line
            if is_wanted:
                self.held += size
                granted.set_result(None)


class Waits:
    """The steps of a worker that wait for memory or for a slice of time. They need no slot meanwhile."""

    __slots__ = ("_changed", "count")

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self.count = 0
        self._changed = changed

    def begin(self) -> None:
        self.count += 1
        self._changed()

    def end(self) -> None:
        self.count -= 1


class StepMemory:
    """What one step holds. ``workflow`` names the workflow that it belongs to; ``heavy`` is called when it waits for
    the first time."""

    __slots__ = ("_budget", "_heavy", "_held", "_workflow", "waits")

    def __init__(
        self,
        budget: MemoryBudget,
        workflow: Callable[[], str] = str,
        waits: Waits | None = None,
        heavy: Callable[[], None] | None = None,
    ) -> None:
        self._budget = budget
        self._workflow = workflow
        self._heavy = heavy
        self._held = 0
        self.waits = waits or Waits()

    def begin_wait(self) -> None:
        if self._heavy is not None:
            self._heavy()
            self._heavy = None
        self.waits.begin()

    @property
    def held(self) -> int:
        return self._held

    @property
    def total(self) -> int:
        return self._budget.total

    async def claim(self, size: int) -> None:
        if self._held < min(size, self._budget.total):
            self.release()
            self.begin_wait()
            try:
                self._held += await self._budget.claim(size, self._workflow())
            finally:
                self.waits.end()

    def shrink(self, size: int) -> None:
        """Keep ``size`` bytes at most, and give back the rest."""
        if self._held > size:
            held, self._held = self._held, size
            self._budget.release(held - size)

    def release(self) -> None:
        self.shrink(0)


step_memory: ContextVar[StepMemory | None] = ContextVar("dalsegno-step-memory", default=None)
"""Of the step that runs in this task; None outside of a worker."""


@contextmanager
def waiting() -> Iterator[None]:
    """The step that runs in this task waits for its turn, and needs no slot of its worker meanwhile."""
    memory = step_memory.get()
    if memory is None:
        yield
        return
    memory.begin_wait()
    try:
        yield
    finally:
        memory.waits.end()


async def claim_memory(size: int) -> None:
    """For the step that runs in this task. Returns at once where the step holds as much, or there is no step."""
    memory = step_memory.get()
    if memory is not None and size > LIGHT:
        await memory.claim(size)


async def claim_more_memory(size: int) -> None:
    """Beside what the step that runs in this task holds already."""
    memory = step_memory.get()
    if memory is not None:
        await memory.claim(memory.held + size)


def must_claim_memory() -> bool:
    """Whether a step runs in this task that has claimed nothing yet."""
    memory = step_memory.get()
    return memory is not None and memory.held == 0


def is_light(size: int) -> bool:
    """Whether the step that runs in this task would have to claim so many bytes first."""
    memory = step_memory.get()
    return memory is not None and memory.held < min(size, memory.total)


def is_heavy(size: int) -> bool:
    """Whether the step that runs in this task has claimed so many bytes."""
    memory = step_memory.get()
    return memory is not None and memory.held >= min(size, memory.total)


def keep_memory(size: int) -> None:
    """What the step that runs in this task still needs; the rest goes to others."""
    memory = step_memory.get()
    if memory is not None:
        memory.shrink(size)
