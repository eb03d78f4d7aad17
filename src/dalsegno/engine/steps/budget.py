"""Budgets of steps: a small one in the event loop of the worker, the full limits in a subprocess.

Nearly every step is light: it takes less than a few milliseconds and a few hundred kilobytes. Each step begins as a
light one. If it needs more, it is given up with `Heavy` before it has had any effect, and is computed again in a
subprocess (see `dalsegno.engine.subprocesses.heavy_steps`), which keeps values of megabytes and long computations out
of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from time import monotonic
from typing import Any, TypeVar

from dalsegno.engine.settings import EngineLimits
from dalsegno.lang import Limits
from dalsegno.lang.errors import ScriptThrow, limit_exceeded
from dalsegno.lang.runtime import limits as light_runs
from dalsegno.lang.runtime.limits import EVALUATION, Heavy, Meter

T = TypeVar("T")

LIGHT_INSTRUCTIONS = 10_000
"""Instructions of all evaluations in a light step, or of a light turn of a script."""
LIGHT_ALLOCATION = 256 * 1024
"""Bytes that the evaluations of a light step may allocate."""
LIGHT_BYTES = 256 * 1024
"""Bytes of JSON that a light step reads, and of the state of a script that is resumed in the event loop."""
LIGHT_PARTS = 10_000
"""Lists and objects in a value that a light turn of a script passes on."""

SLICE = 0.005
"""Seconds after which a loop over much data yields to the other work of its process."""

is_light = light_runs.is_light


def refuse_if_light(size: int) -> None:
    """Raise `Heavy` if a light step must not read this many bytes of JSON."""
    if size > LIGHT_BYTES and is_light.get():
        raise Heavy


def light_limits(limits: Limits) -> Limits:
    return replace(
        limits,
        instructions=min(limits.instructions, LIGHT_INSTRUCTIONS),
        allocated_bytes=min(limits.allocated_bytes, LIGHT_ALLOCATION),
        is_light=True,
    )


class LightMeter(Meter):
    """The meter of a light step, shared by all its expressions."""

    __slots__ = ()

    def renew(self) -> None:
        """Do nothing: all evaluations share one budget."""


class StepMeter(Meter):
    """The meter of one step: each evaluation within its own limits, all of them within those of the step. What is
    rendered together counts as one evaluation.
    """

    __slots__ = ("_granted", "_granted_bytes", "_step", "_step_bytes_left", "_step_left")

    def __init__(self, limits: EngineLimits) -> None:
        super().__init__(limits.expressions, EVALUATION)
        self._step = limits
        self._step_left = limits.step_instructions
        self._step_bytes_left = limits.step_bytes
        self._granted = self.work_left = min(self.work_left, self._step_left)
        self._granted_bytes = self.bytes_left

    def renew(self) -> None:
        self._step_left -= self._granted - self.work_left
        self._step_bytes_left -= self._granted_bytes - self.bytes_left
        self._granted = self.work_left = min(self.limits.instructions, self._step_left)
        self._granted_bytes = self.bytes_left = min(self.limits.allocated_bytes, self._step_bytes_left)

    def too_much_work(self) -> ScriptThrow:
        if self._granted == self.limits.instructions:
            return super().too_much_work()
        return limit_exceeded(
            f"more than {self._step.step_instructions:,} instructions in all expressions of one step: compute less in "
            "this node, and the rest in a task, or raise EngineLimits(step_instructions=…)"
        )


class Meters:
    """A factory of meters."""

    __slots__ = ("_light", "limits")

    def __init__(self, limits: EngineLimits) -> None:
        self.limits = limits
        self._light = light_limits(limits.expressions)

    async def evaluate(self, evaluate: Callable[[Meter], T]) -> T:
        """Evaluate in the event loop if that is light. A light step is given up otherwise. A step that has had
        effects cannot be given up and continues in a thread.
        """
        try:
            return evaluate(LightMeter(self._light))
        except Heavy:
            if is_light.get():
                raise
        meter = StepMeter(self.limits)
        try:
            job = asyncio.get_running_loop().run_in_executor(None, evaluate, meter)
        except NotImplementedError:  # a loop without threads
            return evaluate(meter)
        return await job

    def new(self, *, may_be_light: bool = True) -> Meter:
        """Return a meter for the step of this task. ``may_be_light``: whether the step can be given up."""
        if may_be_light and is_light.get():
            return LightMeter(self._light)
        return StepMeter(self.limits)


async def evaluated_each(
    evaluate: Callable[[Mapping[str, Any] | None], Any],
    names: Iterable[Mapping[str, Any] | None],
    heartbeat: Callable[[], None],
) -> list[Any]:
    """Return the value for each set of names, yielding to the other work of the process in between."""
    values: list[Any] = []
    until = monotonic() + SLICE
    for local in names:
        values.append(evaluate(local))
        if monotonic() > until:
            heartbeat()
            await asyncio.sleep(0)
            until = monotonic() + SLICE
    return values
