"""The budget of one step: what all expressions in one run of a node may use, and how long they may hold the event loop.

Evaluations begin in the event loop. One that takes longer than a moment is given up and done again in a thread, which
pauses between its slices; evaluations have no effects, so that is safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from dalsegno.engine.heavy_work import PAUSE, SLICE, heavy_work
from dalsegno.engine.memory_budget import LIGHT, claim_memory, is_light, keep_memory
from dalsegno.engine.settings import EngineLimits
from dalsegno.lang import ExpressionFailed
from dalsegno.lang.errors import ScriptThrow, limit_exceeded
from dalsegno.lang.limits import Meter, Span

T = TypeVar("T")

FIRST = 0.001
"""Seconds that the expressions of a step may take before it gives way for the first time."""
BRIEF = 2_000
"""Instructions that are never given up: a process that had to wait for its processor has not computed long."""
LARGE = 20_000
"""Work of a single library function that is not done in the event loop."""

STEP = Span("one evaluation", "compute less in this expression, and the rest in a task")

_clock = time.monotonic


class StepMeter(Meter):
    """Counts what the expressions of one step use: each evaluation within the limits of one, all of them within those
    of the step. What is rendered together counts as one evaluation."""

    __slots__ = (
        "deferred",
        "granted",
        "granted_bytes",
        "in_thread",
        "light",
        "step",
        "step_bytes_left",
        "step_left",
        "until",
    )

    def __init__(self, limits: EngineLimits) -> None:
        super().__init__(limits.expressions, STEP)
        self.step = limits
        self.step_left = limits.step_instructions
        self.step_bytes_left = limits.step_bytes
        self.granted = self.work_left = min(self.work_left, self.step_left)
        self.granted_bytes = self.bytes_left
        self.until = 0.0
        """When the evaluation is to give way; 0: it need not."""
        self.in_thread = False
        self.light = False
        """Whether the step has claimed no memory."""
        self.deferred = False
        """Whether an evaluation was given up because it takes long."""

    def renew(self) -> None:
        self.exceeded = False
        self.step_left -= self.granted - self.work_left
        self.step_bytes_left -= self.granted_bytes - self.bytes_left
        self.granted = self.work_left = min(self.limits.instructions, self.step_left)
        self.granted_bytes = self.bytes_left = min(self.limits.allocated_bytes, self.step_bytes_left)

    @property
    def allocated(self) -> int:
        """Bytes that the step has used so far."""
        return self.step.step_bytes - self.step_bytes_left + self.granted_bytes - self.bytes_left

    def allowance(self) -> int:
        if self.until and self.granted - self.work_left > BRIEF and _clock() > self.until:
            if not self.in_thread:
                self.deferred = True
                return 0
            time.sleep(PAUSE)
            self.until = _clock() + SLICE
        return self.work_left

    def work(self, steps: int) -> None:
        self.work_left -= steps
        if steps > LARGE and self.until and not self.in_thread and self.work_left >= 0:
            self.deferred = True
            raise self.too_much_work()
        if self.work_left < 0:
            raise self.too_much_work()

    def keep(self, size: int, what: str) -> None:
        if self.light and self.granted_bytes - self.bytes_left + size > LIGHT:
            self.deferred = True
            raise limit_exceeded(f"{what} needs more memory than the step has claimed")
        super().keep(size, what)

    def too_much_work(self) -> ScriptThrow:
        if self.granted == self.limits.instructions:
            return super().too_much_work()
        self.exceeded = True
        return limit_exceeded(
            f"more than {self.step.step_instructions:,} instructions in all expressions of one step: compute less in "
            "this node, and the rest in a task, or raise EngineLimits(step_instructions=…)"
        )

    def state(self) -> tuple[int, int, int, int, int, int]:
        return (
            self.work_left,
            self.bytes_left,
            self.granted,
            self.granted_bytes,
            self.step_left,
            self.step_bytes_left,
        )

    def restore(self, state: tuple[int, int, int, int, int, int]) -> None:
        (
            self.work_left,
            self.bytes_left,
            self.granted,
            self.granted_bytes,
            self.step_left,
            self.step_bytes_left,
        ) = state
        self.deferred = self.exceeded = False


def try_at_once(meter: StepMeter, work: Callable[[], T], seconds: float = FIRST) -> T | None:
    """Do ``work``, which evaluates expressions, in the event loop. Where it takes long, or more memory than the
    step has claimed, the meter says ``deferred`` afterwards, and the result means nothing."""
    meter.until = _clock() + seconds
    meter.light = is_light(meter.limits.allocated_bytes)
    try:
        return work()
    except ExpressionFailed:
        if not meter.deferred:
            raise
        return None
    finally:
        meter.until, meter.light = 0.0, False


async def in_thread(meter: StepMeter, workflow: str, work: Callable[[], T]) -> T:
    """Do ``work`` beside the event loop, in slices, with the memory that one evaluation may use. Afterwards the
    step keeps as much as its evaluations have allocated."""
    await claim_memory(meter.allocated + meter.limits.allocated_bytes)

    def run() -> T:
        meter.in_thread, meter.until = True, _clock() + SLICE
        try:
            return work()
        finally:
            meter.in_thread, meter.until = False, 0.0

    found = await heavy_work().in_thread(workflow, run)
    keep_memory(meter.allocated)
    return found


async def evaluated(meter: StepMeter, workflow: str, work: Callable[[], T]) -> T:
    """The result of ``work``, which evaluates expressions with this meter, wherever it is done."""
    before = meter.state()
    result = try_at_once(meter, work)
    if not meter.deferred:
        return result  # type: ignore[return-value]
    meter.restore(before)
    return await in_thread(meter, workflow, work)


async def evaluated_each(
    meter: StepMeter,
    workflow: str,
    evaluate: Callable[[Mapping[str, Any] | None], Any],
    names: Iterable[Mapping[str, Any] | None],
    heartbeat: Callable[[], None],
) -> list[Any]:
    """An expression's value for each set of names. Others get their turn by elapsed time."""
    values: list[Any] = []
    until = _clock() + FIRST
    for local in names:
        if _clock() > until:
            heartbeat()
            await claim_memory(meter.allocated)
            await heavy_work().turn(workflow)
            until = _clock() + SLICE
        before = meter.state()
        value = try_at_once(meter, lambda: evaluate(local), SLICE)  # noqa: B023 - called at once
        if meter.deferred:
            meter.restore(before)
            value = await in_thread(meter, workflow, lambda: evaluate(local))  # noqa: B023 - awaited here
            until = _clock() + FIRST
        values.append(value)
    return values
