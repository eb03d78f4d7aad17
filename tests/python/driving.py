"""Runs workflows without an engine: tasks are called here, time is a number, and machines are stored as often as asked.

``natively`` runs the very same function as an ordinary coroutine: CPython is the oracle.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dalsegno.lang.python import (
    Durable,
    PythonMachine,
    PythonProgram,
    compile_workflow,
    error_value,
    to_plain,
)
from dalsegno.lang.runtime.effects import (
    AwaitSignal,
    Cancel,
    Effect,
    Err,
    ErrorValue,
    Ok,
    Outcome,
    StartTask,
    StartTimer,
    StartWorkflow,
)
from dalsegno.lang.runtime.limits import DEFAULT_LIMITS, Limits

Mode = Literal["hot", "stored", "every"]
MODES: tuple[Mode, ...] = ("hot", "stored", "every")


def finish(awaitable: Any) -> Any:
    """The result of a coroutine that never really waits."""
    try:
        awaitable.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("a task of these tests must not wait")


def started(function: Callable[..., Any], inputs: Any = None, **options: Any) -> PythonMachine:
    """A machine on its own, as it comes to its first await."""
    return PythonMachine.start(
        compile_workflow(function), inputs, {"executionId": "e1"}, now=100.0, **options
    )


@dataclass
class Driver:
    """What surrounds a machine: outcomes in the order in which they happened, timers, signals, a clock."""

    program: PythonProgram
    mode: Mode = "stored"
    tasks: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    signals: dict[str, list[Any]] = field(default_factory=dict)
    limits: Limits = DEFAULT_LIMITS
    lossy: bool = False
    """Whether something (an exception's attribute) may be left out of the snapshot."""

    def __post_init__(self) -> None:
        self.now = 1_000.0
        self.effects: list[Effect] = []
        self.outcomes: dict[str, Outcome] = {}
        self.timers: list[tuple[float, str]] = []
        self.waiting: list[AwaitSignal] = []
        self._told: tuple[frozenset[str], int] | None = None

    def run(self, inputs: Any = None) -> PythonMachine:
        budget = 1 if self.mode == "every" else None
        machine = PythonMachine.start(
            self.program, inputs, {"executionId": "e1"}, now=self.now, budget=budget, limits=self.limits
        )
        while machine.status in ("suspended", "paused"):
            machine = self.stop(machine)
            if machine.status == "paused":
                self._told = None
                assert machine.resume({}, now=self.now, budget=budget)
            elif not self._advance(machine):
                return machine
            else:
                self.told(self.outcomes)
                assert machine.resume(dict(self.outcomes), now=self.now, budget=budget)
        self.take(machine)
        return machine

    def stop(self, machine: PythonMachine) -> PythonMachine:
        """Takes what the machine asks for and, unless it stays hot, stores and loads it."""
        if self.mode == "hot":
            self.take(machine)
            return machine
        data = machine.dumps()
        loaded = PythonMachine.loads(self.program, data, limits=self.limits)
        assert self.lossy or loaded.dumps() == data
        self.take(loaded)
        return loaded

    def told(self, outcomes: dict[str, Outcome]) -> None:
        """The machine is about to be told this."""

    def take(self, machine: PythonMachine) -> None:
        for effect in machine.take_effects():
            self.effects.append(effect)
            self._begin(effect)

    def _begin(self, effect: Effect) -> None:
        match effect:
            case StartTask(id, name, inputs) | StartWorkflow(id, name, inputs, detached=False):
                self.outcomes[id] = self._task(name, inputs)
            case StartTimer(id, due):
                heapq.heappush(self.timers, (due, id))
            case AwaitSignal():
                self.waiting.append(effect)
            case Cancel(id):
                self.timers = [timer for timer in self.timers if timer[1] != id]
                heapq.heapify(self.timers)
            case _:
                pass

    def _task(self, name: str, inputs: Any) -> Outcome:
        durable = self._durable(name)
        try:
            return Ok(to_plain(call_with(durable, inputs), "result"))
        except Exception as error:  # noqa: BLE001 - whatever a task raises is its outcome
            return Err(error_value(error))

    def _durable(self, name: str) -> Callable[..., Any]:
        if name in self.tasks:
            return self.tasks[name]
        found = self.program.durable("task", name) or self.program.durable("workflow", name)
        assert found is not None, name
        return found

    def _advance(self, machine: PythonMachine) -> bool:
        """False if nothing can happen any more. First it is told what is known; then a signal comes, or time passes."""
        wanted = leaf_ids(machine.awaiting)
        state = (frozenset(wanted), len(self.outcomes))
        if wanted & set(self.outcomes) and self._told != state:
            self._told = state
            return True
        return self._signal(wanted) or self._next_timer()

    def _signal(self, wanted: set[str]) -> bool:
        for wait in self.waiting:
            if wait.id in wanted and wait.id not in self.outcomes and self.signals.get(wait.name):
                self.outcomes[wait.id] = Ok(self.signals[wait.name].pop(0))
                return True
        return False

    def _next_timer(self) -> bool:
        dues = [
            (wait.due, wait.id)
            for wait in self.waiting
            if wait.due is not None and wait.id not in self.outcomes
        ]
        upcoming = sorted([*self.timers, *dues])
        if not upcoming:
            return False
        due, promise = upcoming[0]
        self.now = max(self.now, due)
        if upcoming[0] in self.timers:
            self.timers.remove(upcoming[0])
            self.outcomes[promise] = Ok(None)
        else:
            self.outcomes[promise] = Err(ErrorValue("TimeoutError", "no signal in time"))
        return True


def call_with(function: Callable[..., Any], inputs: Any) -> Any:
    """As the engine calls a task: one parameter takes the whole input, several an object's fields."""
    plain = function.function if isinstance(function, Durable) else function
    names = list(inspect.signature(plain).parameters)
    result = plain() if not names else plain(inputs) if len(names) == 1 else plain(**inputs)
    return finish(result) if inspect.iscoroutine(result) else result


def leaf_ids(awaited: Any) -> set[str]:
    if awaited is None:
        return set()
    return {awaited.id} if awaited.id else {leaf for item in awaited.items for leaf in leaf_ids(item)}


def drive(function: Any, inputs: Any = None, mode: Mode = "stored", **options: Any) -> PythonMachine:
    program = function.program if hasattr(function, "program") else compile_workflow(function)
    return Driver(program, mode, **options).run(inputs)


def outcome(machine: PythonMachine) -> tuple[str, Any]:
    """For comparison with `natively`."""
    if machine.status == "failed":
        assert machine.error is not None
        return ("raised", (machine.error.type or machine.error.code, machine.error.message))
    return (machine.status, machine.result)


def natively(function: Any, *arguments: Any) -> tuple[str, Any]:
    """The same function as CPython runs it."""
    plain = getattr(function, "function", function)

    async def main() -> Any:
        return await plain(*arguments)

    try:
        return ("completed", to_plain(asyncio.run(main()), "result"))
    except Exception as error:  # noqa: BLE001 - to be compared
        return ("raised", (type(error).__name__, str(error) or type(error).__name__))
