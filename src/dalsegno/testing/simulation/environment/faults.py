"""The schedule of faults of a run. Plain data, so that it can be printed, repeated and shrunk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Literal

from msgspec import Struct

FaultKind = Literal[
    "crash", "stop", "jump", "pause", "resume", "cancel", "look",
    "fail", "lose-reply", "slow", "twice",
    "drop", "duplicate", "delay",
]  # fmt: skip

STEP_FAULTS: tuple[FaultKind, ...] = ("crash", "stop", "jump", "pause", "resume", "cancel", "look")
CALL_FAULTS: tuple[FaultKind, ...] = ("fail", "lose-reply", "slow", "twice")
MESSAGE_FAULTS: tuple[FaultKind, ...] = ("drop", "duplicate", "delay")


class Fault(Struct, frozen=True):
    """One fault.

    * ``at`` counts steps of the loop (STEP_FAULTS), calls of the ledger (CALL_FAULTS) or announcements
      (MESSAGE_FAULTS).
    * ``arg`` is the process's number, or seconds.
    """

    kind: FaultKind
    at: int
    arg: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind}@{self.at}" + (f"({self.arg:g})" if self.arg else "")


class Faults:
    """A schedule, looked up by counters."""

    def __init__(self, schedule: Iterable[Fault]) -> None:
        self.steps: dict[int, Fault] = {}
        self.calls: dict[int, Fault] = {}
        self.messages: dict[int, Fault] = {}
        self.applied: list[Fault] = []
        self._call = 0
        self._message = 0
        for fault in schedule:
            self._table(fault)[fault.at] = fault

    def _table(self, fault: Fault) -> dict[int, Fault]:
        if fault.kind in STEP_FAULTS:
            return self.steps
        return self.calls if fault.kind in CALL_FAULTS else self.messages

    def step(self, number: int) -> Fault | None:
        return self._apply(self.steps.get(number))

    def call(self) -> Fault | None:
        self._call += 1
        return self._apply(self.calls.get(self._call))

    def message(self) -> Fault | None:
        self._message += 1
        return self._apply(self.messages.get(self._message))

    def _apply(self, fault: Fault | None) -> Fault | None:
        if fault is not None:
            self.applied.append(fault)
        return fault


MAX_LOSSES = 4
"""Crashes and jumps that cost leases, per run: a fifth could make a token fail as WorkerLost."""


def draw_schedule(random: Random, *, steps: int, commands: bool) -> tuple[Fault, ...]:
    """Return a random schedule for a run of about ``steps`` steps."""
    faults: list[Fault] = []
    chance = random.random()
    if chance < 0.85:
        faults += _crashes(random, steps)
    if chance > 0.15:
        faults += _spread(random, CALL_FAULTS, steps // 2, random.choice((0.01, 0.03, 0.1)))
        faults += _spread(random, MESSAGE_FAULTS, steps // 8, random.choice((0.02, 0.1, 0.4)))
    if commands:
        faults += _commands(random, steps)
    return tuple(sorted(faults, key=lambda fault: (fault.kind, fault.at)))


def _crashes(random: Random, steps: int) -> list[Fault]:
    faults: list[Fault] = []
    losses = random.randrange(MAX_LOSSES + 1)
    while losses > 0:
        at = 1 + random.randrange(steps)
        if losses > 1 and random.random() < 0.3:
            # Counts twice: a process that claims again before its next heartbeat may lose that lease as well.
            faults.append(Fault("jump", at, random.choice((1.5, 25.0, 90.0))))
            losses -= 2
        else:
            faults.append(Fault("crash", at, random.randrange(2)))
            losses -= 1
    if random.random() < 0.3:
        faults.append(Fault("jump", 1 + random.randrange(steps), random.choice((-0.5, -2.0, -5.0))))
    if random.random() < 0.2:
        faults.append(Fault("stop", 1 + random.randrange(steps), random.randrange(2)))
    if random.random() < 0.1:
        faults.append(Fault("look", 1 + random.randrange(steps)))
    return faults


def _spread(random: Random, kinds: Sequence[FaultKind], points: int, rate: float) -> list[Fault]:
    count = min(int(points * rate * random.random()) + 1, 60)
    return [_one(random, random.choice(kinds), points) for _ in range(count)]


def _one(random: Random, kind: FaultKind, points: int) -> Fault:
    at = 1 + random.randrange(max(points, 1))
    if kind in ("slow", "delay"):
        return Fault(kind, at, random.choice((0.02, 0.5, 3.0, 30.0)))
    return Fault(kind, at)


def _commands(random: Random, steps: int) -> list[Fault]:
    faults: list[Fault] = []
    for _ in range(random.randrange(1, 3)):
        at = 1 + random.randrange(steps)
        faults += [Fault("pause", at), Fault("resume", at + 1 + random.randrange(steps))]
    if random.random() < 0.3:
        faults.append(Fault("cancel", 1 + random.randrange(steps)))
    return faults
