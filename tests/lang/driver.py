"""Drives scripts through a small world of tasks, timers and signals, in virtual time and by several routes.

A program must mean the same whether its machine stays in memory, is stored and loaded at every stop, or at every
instruction, and whether its lists are changed in place or copied.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from dalsegno.lang import (
    Awaitable,
    AwaitSignal,
    Cancel,
    Effect,
    Err,
    ErrorValue,
    FlowProgram,
    Limits,
    Machine,
    Ok,
    Outcome,
    StartTask,
    StartTimer,
    StartWorkflow,
    compile,
)
from dalsegno.lang.flow.runtime import instructions

START = 1_700_000_000.0
CONTEXT = {"executionId": "e-1", "workflow": "test", "version": 1, "startedAt": START, "attempt": 1}


class Later(NamedTuple):
    """A task's answer that takes its time."""

    seconds: float
    answer: Any


class Failed(NamedTuple):
    """A task's answer that is a failure."""

    code: str
    message: str = "it failed"


class Signal(NamedTuple):
    """A signal that arrives so many seconds after the start."""

    seconds: float
    name: str
    data: Any = None


class Ending(NamedTuple):
    """How a run went, as far as a program or its users can tell."""

    status: str
    result: Any
    error: ErrorValue | None
    effects: list[Effect]
    logs: list[tuple[str, str]]


def leaf_ids(awaited: Awaitable) -> list[str]:
    if awaited.id:
        return [awaited.id]
    return [found for item in awaited.items for found in leaf_ids(item)]


@dataclass
class World:
    """Answers effects in virtual time. Tasks answer at once unless they say `Later`, in the order of their making."""

    tasks: Mapping[str, Any] = field(default_factory=dict)
    signals: Iterable[Signal] = ()
    now: float = START
    done: dict[str, Outcome] = field(default_factory=dict)
    due: list[tuple[float, int, str, Outcome]] = field(default_factory=list)
    mailbox: list[Signal] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    timeouts: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arriving = sorted(self.signals)

    def take(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            self.effects.append(effect)
            match effect:
                case StartTask() | StartWorkflow():
                    seconds, outcome = self.answer(effect.name, effect.inputs)
                    self.schedule(self.now + seconds, effect.id, outcome)
                case StartTimer():
                    self.schedule(effect.due, effect.id, Ok(None))
                case AwaitSignal():
                    if effect.due is not None:
                        late = ErrorValue("TimeoutError", f"no signal '{effect.name}' in time")
                        self.schedule(effect.due, effect.id, Err(late))
                case Cancel():
                    self.due = [entry for entry in self.due if entry[2] != effect.id]
                    heapq.heapify(self.due)

    def answer(self, name: str, inputs: Any) -> tuple[float, Outcome]:
        found = self.tasks.get(name, f"{name}!")
        answer = found(inputs) if callable(found) else found
        seconds = 0.0
        if isinstance(answer, Later):
            seconds, answer = answer
        if isinstance(answer, Failed):
            return seconds, Err(ErrorValue(answer.code, answer.message, "Failure"))
        return seconds, Err(answer) if isinstance(answer, ErrorValue) else Ok(answer)

    def schedule(self, due: float, id: str, outcome: Outcome) -> None:
        heapq.heappush(self.due, (due, len(self.effects), id, outcome))

    def step(self, machine: Machine) -> bool:
        """Let the next thing happen; false if nothing ever will."""
        if self.deliver_signals(machine):
            return True
        if not self.due and not self.arriving:
            return False
        if self.arriving and (not self.due or START + self.arriving[0].seconds < self.due[0][0]):
            signal = self.arriving.pop(0)
            self.now = max(self.now, START + signal.seconds)
            self.mailbox.append(signal)
            return True
        due, _, promise, outcome = heapq.heappop(self.due)
        self.now = max(self.now, due)
        self.done.setdefault(promise, outcome)
        return True

    def deliver_signals(self, machine: Machine) -> bool:
        """Give signals in the mailbox to the oldest waiting promises; true if one was given."""
        before = len(self.mailbox)
        for waiting in machine.waiting_signals():
            if waiting.id not in self.done:
                for signal in self.mailbox:
                    if signal.name == waiting.name:
                        self.mailbox.remove(signal)
                        self.done[waiting.id] = Ok(signal.data)
                        break
        return len(self.mailbox) < before

    def known(self, awaited: Awaitable) -> dict[str, Outcome]:
        wanted = set(leaf_ids(awaited))
        return {promise: outcome for promise, outcome in self.done.items() if promise in wanted}


class Route:
    """What is done with a machine at every stop: here nothing, it stays in memory."""

    def stop(self, program: FlowProgram, machine: Machine) -> Machine:
        return machine

    def fetch(self, machine: Machine) -> None:
        raise AssertionError(f"nothing was stored apart, but {machine.missing} is missing")


class Stored(Route):
    """The machine is stored and loaded."""

    def stop(self, program: FlowProgram, machine: Machine) -> Machine:
        loaded = Machine.loads(program, machine.dumps())
        assert loaded.variables() == (
            {} if machine.status in ("completed", "failed") else machine.variables()
        )
        assert (loaded.reachable(), loaded.waiting_signals()) == (
            machine.reachable(),
            machine.waiting_signals(),
        )
        assert (loaded.awaiting, loaded.status) == (machine.awaiting, machine.status)
        return loaded


class StoredApart(Route):
    """The machine is stored and loaded, its large values apart; they are fetched when they are missing."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    def put(self, data: bytes) -> str:
        name = f"blob-{len(self.blobs)}"
        self.blobs[name] = data
        return name

    def stop(self, program: FlowProgram, machine: Machine) -> Machine:
        return Machine.loads(program, machine.dumps(self.put))

    def fetch(self, machine: Machine) -> None:
        machine.provide({name: self.blobs[name] for name in machine.missing})


def drive(
    program: FlowProgram,
    world: World,
    inputs: Any = None,
    *,
    route: Route | None = None,
    budget: int | None = None,
    limits: Limits | None = None,
    context: Mapping[str, Any] | None = CONTEXT,
) -> tuple[Machine, Ending]:
    """Run until the machine ends, or nothing can wake it any more."""
    route = route or Route()
    chosen = {} if limits is None else {"limits": limits}
    machine = Machine.start(program, inputs, context, now=world.now, budget=budget, **chosen)
    logs = []
    while True:
        world.take(machine.take_effects())
        logs += machine.take_logs()
        if machine.missing:
            route.fetch(machine)
        else:
            machine = route.stop(program, machine)
        if machine.status == "paused":
            assert machine.resume({}, now=world.now, budget=budget)
            continue
        if machine.status != "suspended":
            break
        assert machine.awaiting is not None
        if not machine.resume(world.known(machine.awaiting), now=world.now, budget=budget) and not world.step(
            machine
        ):
            break
    return machine, Ending(machine.status, machine.result, machine.error, world.effects, logs)


def play(
    source: str,
    inputs: Any = None,
    *,
    tasks: Mapping[str, Any] | None = None,
    signals: Iterable[Signal] = (),
    routes: bool = True,
) -> Ending:
    """Run a program by every route; they must agree."""
    program = compile(source, "test")

    def by(route: Route, budget: int | None, stored: bool = True) -> Ending:
        chosen = FlowProgram.load(program.dump()) if stored else program
        return drive(chosen, World(tasks or {}, signals), inputs, route=route, budget=budget)[1]

    ending = by(Route(), None, stored=False)
    assert ending.error is None or ending.error.code != "INTERNAL_ERROR", ending.error
    if routes:
        assert by(Stored(), None) == ending
        assert by(StoredApart(), None) == ending
        assert by(Route(), 1) == ending
        assert by(Stored(), 1) == ending
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(instructions, "UNSHARED", -1)
            assert by(Route(), None) == ending
    return ending


def result_of(source: str, inputs: Any = None, **world: Any) -> Any:
    ending = play(source, inputs, **world)
    assert ending.status == "completed", ending.error or ending.status
    return ending.result


def error_of(source: str, inputs: Any = None, **world: Any) -> ErrorValue:
    ending = play(source, inputs, **world)
    assert ending.status == "failed", ending
    assert ending.error is not None
    return ending.error
