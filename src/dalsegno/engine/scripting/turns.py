"""A turn: running a machine from one stop to the next await that nothing known resolves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, TypeAlias, TypeVar

import msgspec

from dalsegno.core.script import Turn
from dalsegno.core.task_options import child_options, task_options
from dalsegno.core.values import encode_value
from dalsegno.core.wake import decided, leaf_ids, leaves_of, wake_of
from dalsegno.engine.scripting.programs import RunningMachine
from dalsegno.errors import DalSegnoError, InvalidInput, LimitExceeded, NotJson
from dalsegno.lang.effects import Awaitable as Awaited
from dalsegno.lang.effects import Effect, ErrorValue, Ok, Outcome, StartTask, StartWorkflow, promise_id, promise_number
from dalsegno.model.ids import promise_token_id
from dalsegno.model.machine import CancelReason, Completion, SignalView, TakenSignal
from dalsegno.ports.blobs import Blobs

T = TypeVar("T")

SLICE = 20_000
"""Instructions after which a script lets the rest of its process go on for a moment."""
MOST_STOPS = 100_000
"""Awaits of settled promises in one turn: a loop over them would otherwise never end."""

InThread = Callable[[Callable[[], T]], Awaitable[T]]

Place: TypeAlias = tuple[float, int]
"""The number of a completion; of a signal, the number of the completion it came after, and its own."""
LAST: Place = (float("inf"), 0)


@dataclass(slots=True)
class Job:
    """A machine about to run, and everything known that may concern it."""

    execution: str
    version: int
    read: int
    now: float
    known: dict[str, Outcome]
    """In the order of completion."""
    places: dict[str, Place] = field(default_factory=dict)
    """Where in that order each stored completion and each signal stands."""
    signals: Sequence[SignalView] = ()
    decode_signal: Callable[[SignalView], Any] = lambda signal: None
    cancel: CancelReason = ""
    interrupted: bool = False
    reason: str | None = None
    """Why it was asked to end, if somebody said so."""
    settled: Completion | None = None
    taken: list[TakenSignal] = field(default_factory=list)
    stops: int = 0
    awaiting: Awaited | None = None
    """What the machine awaits in the end."""


@dataclass(frozen=True, slots=True)
class TurnLimits:
    instructions: int = 2_000_000
    snapshot_bytes: int = 4 * 1024 * 1024
    value_bytes: int = 64 * 1024 * 1024


class Turns:
    def __init__(
        self,
        blobs: Blobs,
        limits: TurnLimits,
        log: Callable[[str, str, str], None],
        queue_of: Callable[[str], str | None],
    ) -> None:
        """``queue_of``: the queue a task registered in this process asks for."""
        self._queue_of = queue_of
        self.blobs = blobs
        self.limits = limits
        self._log = log

    async def run(
        self, job: Job, begin: Callable[[], RunningMachine], in_thread: InThread[None] | None
    ) -> tuple[Turn, RunningMachine | None]:
        """``begin`` starts or hands over the machine. With ``in_thread`` everything runs there, because it may call
        the user's own code. The machine is None where it cannot be gone on with."""
        try:
            machine = await self._advance(job, begin, in_thread)
            return await self._turn(job, machine), machine
        except (LimitExceeded, NotJson, InvalidInput) as error:
            code = "LimitExceeded" if isinstance(error, LimitExceeded) else "WRONG_ARG_TYPE"
            return _broken(job, ErrorValue(code, str(error))), None

    async def _advance(
        self, job: Job, begin: Callable[[], RunningMachine], in_thread: InThread[None] | None
    ) -> RunningMachine:
        held: list[RunningMachine] = []

        def go() -> None:
            held.append(begin())
            follow(held[0], job, None)

        if in_thread is not None:
            await in_thread(go)
            return held[0]
        machine = begin()
        follow(machine, job, SLICE)
        used = SLICE
        while machine.status == "paused":
            if machine.missing:
                machine.provide({name: await self.blobs.get(job.execution, name) for name in machine.missing})
            else:
                used += SLICE
                if used > self.limits.instructions:
                    raise LimitExceeded(
                        f"the script ran more than {self.limits.instructions:,} instructions without waiting"
                    )
                await asyncio.sleep(0)
            machine.resume({}, now=job.now, budget=SLICE)
            follow(machine, job, SLICE)
        return machine

    async def _turn(self, job: Job, machine: RunningMachine) -> Turn:
        for level, message in machine.take_logs():
            self._log(job.execution, level, message)
        turn = Turn(
            "failed" if machine.status == "failed" else "completed",
            job.version,
            job.read,
            [self._request(effect) for effect in machine.take_effects()],
            line=machine.line,
            settled=job.settled,
            taken=_in_order(job),
            cancel=job.cancel,
            interrupted=job.interrupted,
        )
        if machine.status == "suspended":
            await self._suspend(job, machine, turn)
        elif machine.status == "failed":
            turn.error = machine.error
        else:
            turn.output = encode_value(machine.result, "the result of the workflow")
            self._check_size(turn.output, "the result of the workflow")
        return turn

    async def _suspend(self, job: Job, machine: RunningMachine, turn: Turn) -> None:
        awaiting = job.awaiting
        if awaiting is None:
            raise DalSegnoError("a suspended machine awaits nothing")
        blobs: dict[str, bytes] = {}

        def put(data: bytes) -> str:
            name = sha256(data).hexdigest()
            blobs[name] = data
            return name

        turn.snapshot = machine.dumps(put=put)
        if len(turn.snapshot) > self.limits.snapshot_bytes:
            raise LimitExceeded(
                f"the state of the script is {len(turn.snapshot):,} bytes, more than the limit snapshot_bytes of "
                f"{self.limits.snapshot_bytes:,}; keep large data in tasks and pass references"
            )
        for data in blobs.values():
            await self.blobs.put(job.execution, data)
        turn.status = "suspended"
        turn.reachable = machine.reachable()
        signals = machine.waiting_signals()
        names = tuple(dict.fromkeys(wait.name for wait in signals if wait.id not in job.known))
        turn.wake = wake_of(awaiting, job.known, names)
        turn.awaited = describe(awaiting)

    def _request(self, effect: Effect) -> tuple[Effect, bytes]:
        if isinstance(effect, StartTask):
            if effect.options:
                task_options(effect.options)
            queue = self._queue_of(effect.name)
            if queue is not None and "queue" not in effect.options:
                effect = msgspec.structs.replace(effect, options={**effect.options, "queue": queue})
        elif isinstance(effect, StartWorkflow):
            child_options(effect.options)
        if isinstance(effect, StartTask | StartWorkflow):
            raw = encode_value(effect.inputs, f"the input of '{effect.name}'")
            self._check_size(raw, f"the input of '{effect.name}'")
            return effect, raw
        return effect, b""

    def _check_size(self, raw: bytes, what: str) -> None:
        if len(raw) > self.limits.value_bytes:
            raise LimitExceeded(
                f"{what} is {len(raw):,} bytes of JSON, more than the limit value_bytes of {self.limits.value_bytes:,}"
            )


def follow(machine: RunningMachine, job: Job, budget: int | None) -> None:
    """Hands over what is known at each stop, until the machine ends, is paused, or awaits what nobody knows yet."""
    if job.cancel and not job.interrupted and machine.status == "suspended":
        job.interrupted = True
        machine.interrupt(interruption(job.cancel, job.reason), now=job.now, budget=budget)
    while machine.status == "suspended":
        awaiting = job.awaiting = machine.awaiting
        if awaiting is None:
            return
        if job.signals:
            _give_signals(machine, job)
        _expire_timers(awaiting, job)
        if decided(awaiting, job.known) is None:
            return
        job.stops += 1
        if job.stops > MOST_STOPS:
            raise LimitExceeded(
                f"the script awaited settled promises more than {MOST_STOPS:,} times in one go"
            )
        machine.resume(_concerning(awaiting, job.known), now=job.now, budget=budget)


def _concerning(awaiting: Awaited, known: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """What is known of the leaves, in the order of completion."""
    if awaiting.id:
        return {awaiting.id: known[awaiting.id]}
    leaves = leaf_ids(awaiting)
    return {name: outcome for name, outcome in known.items() if name in leaves}


def interruption(cancel: CancelReason, reason: str | None = None) -> ErrorValue:
    """What is thrown at the await."""
    because = f": {reason}" if reason else ""
    if cancel == "timeout":
        return ErrorValue("TimeoutError", f"the execution did not end within its timeout{because}")
    return ErrorValue("CancelledError", f"the execution was cancelled{because}")


def _give_signals(machine: RunningMachine, job: Job) -> None:
    """Oldest signal to the oldest promise of its name that can still be reached; it counts from when it came."""
    before = len(job.taken)
    given = {taken.signal for taken in job.taken}
    for wait in machine.waiting_signals():
        if wait.id in job.known:
            continue
        signal = next((one for one in job.signals if one.name == wait.name and one.id not in given), None)
        if signal is not None:
            given.add(signal.id)
            job.taken.append(TakenSignal(signal.id, promise_number(wait.id)))
            job.known[wait.id] = Ok(job.decode_signal(signal))
            job.places[wait.id] = (signal.inbox, signal.number)
    if len(job.taken) > before:
        job.known = dict(sorted(job.known.items(), key=lambda one: job.places.get(one[0], LAST)))


def _in_order(job: Job) -> tuple[TakenSignal, ...]:
    """Signals become completions in the order in which they came."""
    return tuple(sorted(job.taken, key=lambda taken: job.places[promise_id(taken.promise)]))


def _expire_timers(awaiting: Awaited, job: Job) -> None:
    """A timer whose time has passed has fired, whether or not its token still exists; the earliest one first."""
    past = [
        (leaf.due, promise_number(leaf.id), leaf.id)
        for leaf in ((awaiting,) if awaiting.id else leaves_of(awaiting))
        if leaf.kind == "timer" and leaf.due is not None and leaf.due <= job.now and leaf.id not in job.known
    ]
    for _, _, name in sorted(past):
        job.known[name] = Ok(None)


def lost_timers(execution: str, before: Awaited | None, turn: Turn) -> tuple[str, ...]:
    """Tokens of timers that were awaited before the turn and cannot be reached after it."""
    if before is None:
        return ()
    found = []
    for leaf in (before,) if before.id else leaves_of(before):
        if leaf.kind in ("timer", "signal") and leaf.due is not None:
            number = promise_number(leaf.id)
            if not any(start <= number < stop for start, stop in turn.reachable):
                found.append(promise_token_id(execution, number))
    return tuple(found)


def describe(awaiting: Awaited) -> str:
    """In a word what is awaited, for the history and for people."""
    if awaiting.items:
        return f"{awaiting.kind} of {len(awaiting.items)}"
    return f"{awaiting.kind} {awaiting.name}" if awaiting.name else awaiting.kind


def _broken(job: Job, error: ErrorValue) -> Turn:
    return Turn(
        "failed",
        job.version,
        job.read,
        error=error,
        settled=job.settled,
        taken=_in_order(job),
        cancel=job.cancel,
        interrupted=job.interrupted,
    )
