"""The machine of scripts: it runs until an ``await`` must wait, and can be stored, loaded and resumed.

It does no I/O and reads no clock. Its whole state is plain data at every instruction: frames, operand stacks, cells,
workflow-wide variables and the number of promises created so far. While it waits, the promise is on top of the operand
stack and the next instruction is that AWAIT.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from dalsegno.lang.expressions.expression import Entropy
from dalsegno.lang.flow.program import FlowProgram
from dalsegno.lang.flow.runtime.instructions import Iteration
from dalsegno.lang.flow.runtime.outcomes import present, shown, with_stack
from dalsegno.lang.flow.runtime.runner import Known, Runner
from dalsegno.lang.flow.snapshot.format import read, write
from dalsegno.lang.flow.snapshot.read import fill, load_blob, restore
from dalsegno.lang.flow.snapshot.write import Kept, Packer, Put, pack_machine, reachable_promises
from dalsegno.lang.runtime.effects import (
    PROMISE_PREFIX,
    Awaitable,
    Effect,
    ErrorValue,
    Outcome,
    WaitingSignal,
    promise_number,
)
from dalsegno.lang.runtime.frames import Frame
from dalsegno.lang.runtime.limits import DEFAULT_LIMITS, Limits
from dalsegno.lang.runtime.machine_state import FrameState, MachineState, promise_states
from dalsegno.lang.runtime.pending_effects import Requests
from dalsegno.lang.runtime.promises import awaitable, ranges, settle
from dalsegno.lang.values.kinds import UNSET, Cell, FunctionValue, Vacant, Value

_GIVEN = ("Inputs", "Context")


class Machine(Runner):
    """One execution of a program. Create one with `start` or `loads`."""

    __slots__ = ("_kept", "_packed", "_vacancies")

    def __init__(self, program: FlowProgram, limits: Limits, entropy: Entropy) -> None:
        super().__init__(program, limits, entropy)
        self._kept: Kept = {}
        self._packed: tuple[Put | None, bytes, Packer] | None = None
        self._vacancies: list[tuple[Any, Any, Vacant]] = []

    # driving

    @classmethod
    def start(
        cls,
        program: FlowProgram,
        inputs: Any = None,
        context: Mapping[str, Any] | None = None,
        *,
        now: float,
        budget: int | None = None,
        limits: Limits = DEFAULT_LIMITS,
        entropy: Entropy = os.urandom,
    ) -> Machine:
        """Run to the first stop. After ``budget`` instructions the status is "paused"."""
        machine = cls(program, limits, entropy)
        surroundings = dict(context or {})
        machine.requests = Requests(str(surroundings.get("executionId", "")))
        given = {"Inputs": inputs, "Context": surroundings}
        machine.globals = {name: value for name, value in given.items() if name in program.mentioned}
        main = program.unit.functions[0]
        arguments = [surroundings, inputs][-main.parameters :] if main.parameters else []
        machine.enter(FunctionValue(main, ()), arguments)
        machine.prepare(now, budget)
        machine.proceed()
        return machine

    def resume(self, outcomes: Mapping[str, Outcome], *, now: float, budget: int | None = None) -> bool:
        """Continue with outcomes of the leaves of `awaiting`, given in the order in which they completed.

        Return false if nothing happened: the machine does not wait, or what it waits for is still pending.
        """
        if self.status == "suspended":
            return self._answer(_numbered(outcomes), now, budget)
        if self.status != "paused" or self.missing:
            return False
        self.known = _numbered(outcomes, len(self.known)) | self.known
        self._packed = None
        self.prepare(now, budget)
        self.proceed()
        return True

    def _answer(self, known: Known, now: float, budget: int | None) -> bool:
        frame = self.top
        promise = frame.stack[-1]
        verdict = settle(promise, known, present)
        if verdict is None:
            return False
        self.known = known
        self._packed = None
        self.prepare(now, budget)
        if not self.needed:
            frame.position += 1
            self.conclude(frame, promise, verdict)
        self.proceed()
        return True

    def interrupt(self, error: ErrorValue, *, now: float, budget: int | None = None) -> bool:
        """Throw an error at the await where the machine waits; return false if it does not wait."""
        if self.status != "suspended":
            return False
        self.top.position += 1
        self._packed = None
        self.prepare(now, budget)
        self.throw(with_stack(error, self.trace()))
        self.proceed()
        return True

    # state for the driver

    @property
    def awaiting(self) -> Awaitable | None:
        """Return what a suspended machine waits for."""
        return awaitable(self.top.stack[-1]) if self.status == "suspended" else None

    def take_effects(self) -> list[Effect]:
        """Return the script's effects since the last call."""
        effects = self.requests.effects
        if effects:
            self.requests.effects = []
            self._packed = None
        return effects

    def take_logs(self) -> list[tuple[str, str]]:
        """Return level and message of the script's log lines since the last call."""
        logs = self.requests.logs
        if logs:
            self.requests.logs = []
            self._packed = None
        return logs

    def take_raised(self) -> frozenset[int]:
        """Return the numbers of the promises in awaits that have thrown since the last call."""
        raised = frozenset(self.raised)
        if raised:
            self.raised = set()
        return raised

    raises_again = False
    """Unknown of a script: a caught error is an ordinary value."""

    def move_to(self, context: Mapping[str, Any]) -> None:
        """Let another execution continue the suspended machine."""
        self.requests.execution = str(context["executionId"])
        if "Context" in self.globals:
            self.globals["Context"] = dict(context)
        self._packed = None

    @property
    def line(self) -> int:
        """The line that runs or waits."""
        frame = self.frames[-1] if self.frames else None
        if isinstance(frame, Frame) and self.status in ("suspended", "paused"):
            return self.program.line(frame.function.offsets[frame.position])
        return self.program.line(self.offset)

    def variables(self) -> dict[str, Any]:
        """Return the variables in scope by name as readable JSON; inner ones hide outer ones.

        Workflow-wide ones come first, then those of every running function, outermost first.
        """
        found = {name: value for name, value in self.globals.items() if name not in _GIVEN}
        for frame in self.frames:
            if isinstance(frame, Frame):
                found |= _variables_of(frame)
        return {name: shown(value) for name, value in found.items() if _is_set(value)}

    def assign(self, name: str, value: Any) -> None:
        """Give a variable of the function that waits, or one that it captures, another value: plain JSON. Raises
        LookupError, with the names that there are.
        """
        frame = self.top
        places: dict[str, tuple[list[Value], int] | Cell] = dict(
            zip(frame.function.capture_names, frame.cells, strict=True)
        )
        for scope in frame.function.scopes:
            if scope.start < frame.position < scope.stop:
                for slot, known in enumerate(scope.names, scope.first):
                    if known is not None and type(frame.slots[slot]) is not Iteration:
                        boxed = frame.slots[slot]
                        places[known] = boxed if type(boxed) is Cell else (frame.slots, slot)
        if name in places:
            place = places[name]
            if isinstance(place, Cell):
                place.value = value
            else:
                place[0][place[1]] = value
        elif name in self.globals and name not in _GIVEN:
            self.globals[name] = value
        else:
            raise LookupError(", ".join(sorted({*places, *self.globals} - {*_GIVEN})))
        self._packed = None

    def state(self) -> MachineState:
        """Return its functions with their variables, and its promises. Workflow-wide variables belong to the
        outermost function.
        """
        frames = [frame for frame in self.frames if isinstance(frame, Frame)]
        around = {name: value for name, value in self.globals.items() if name not in _GIVEN}
        found = [
            FrameState(
                frame.function.name,
                self.line if frame is frames[-1] else self.program.line(frame.offset),
                {
                    name: shown(value)
                    for name, value in ((around if frame is frames[0] else {}) | _variables_of(frame)).items()
                    if _is_set(value)
                },
            )
            for frame in frames
        ]
        promises = promise_states(reachable_promises(self))
        return MachineState(tuple(found), self.awaiting, self.requests.made, promises)

    # storing

    def dumps(self, put: Put | None = None, most: int | None = None) -> bytes:
        """Return the whole state, for `loads`.

        ``put`` stores a large value elsewhere and returns its name. `LimitExceeded` is raised before the values that
        must be encoded exceed ``most`` bytes.
        """
        return self._pack(put, most)[1]

    @classmethod
    def loads(
        cls,
        program: FlowProgram,
        data: bytes,
        *,
        limits: Limits = DEFAULT_LIMITS,
        entropy: Entropy = os.urandom,
    ) -> Machine:
        """Load a machine. Raise `SnapshotError` unless the data is an undamaged snapshot of this program."""
        machine = cls(program, limits, entropy)
        unpacker = restore(machine, read(program.fingerprint, data))
        machine._vacancies, machine._kept = unpacker.vacancies, unpacker.kept
        return machine

    def provide(self, blobs: Mapping[str, bytes]) -> None:
        """Supply stored values: those that are `missing`, or any others of this snapshot."""
        values = {name: load_blob(data) for name, data in blobs.items()}
        for holder, key, vacancy in self._vacancies:
            if vacancy.blob in values:
                fill(holder, key, vacancy, values[vacancy.blob])
                self.remember(values[vacancy.blob], vacancy)
        self._vacancies = [vacancy for vacancy in self._vacancies if vacancy[2].blob not in values]
        self.missing = tuple([name for name in self.missing if name not in values])
        self.needed = tuple([name for name in self.needed if name not in values])
        self._packed = None

    def remember(self, value: Value, vacancy: Vacant) -> None:
        """Keep the encoded value, so that an unchanged value is not encoded again."""
        if isinstance(value, list | dict | str):
            self._kept[id(value)] = (value, vacancy.blob or vacancy.data)

    def reachable(self) -> tuple[tuple[int, int], ...]:
        """Return the numbers of the promises that the script can still reach, as half-open ranges."""
        return ranges(self._packer().promises)

    def waiting_signals(self) -> tuple[WaitingSignal, ...]:
        """Return the reachable promises of signals, oldest first."""
        found = self._packer().signals
        if not found:
            return ()
        signals = sorted(found.items())
        return tuple([WaitingSignal(found.id, found.name or "", found.due) for _, found in signals])

    def _packer(self) -> Packer:
        return (self._packed or self._pack(None))[2]

    def _pack(self, put: Put | None, most: int | None = None) -> tuple[Put | None, bytes, Packer]:
        packed = self._packed
        if packed is None or packed[0] != put:
            packer = Packer(put, self._kept, most)
            packed = self._packed = (put, write(self.program.fingerprint, pack_machine(self, packer)), packer)
            self._kept = packer.kept
        return packed


def _numbered(outcomes: Mapping[str, Outcome], first: int = 0) -> Known:
    """Return the outcomes by promise number, with their place in the order of completions. Unknown ids are ignored."""
    found: Known = {}
    for place, (name, outcome) in enumerate(outcomes.items(), first):
        if _is_promise(name):
            found.setdefault(promise_number(name), (place, outcome))
    return found


@lru_cache(maxsize=4096)
def _is_promise(name: str) -> bool:
    return name[:1] == PROMISE_PREFIX and name[1:].isdecimal() and name.isascii()


def _variables_of(frame: Frame) -> dict[str, Value]:
    """Return the variables that a function can see: those that it captured, and its own in scope."""
    captured = zip(frame.function.capture_names, frame.cells, strict=True)
    return {name: cell.value for name, cell in captured} | _in_scope(frame)


def _in_scope(frame: Frame) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for scope in frame.function.scopes:
        if scope.start < frame.position < scope.stop:
            for slot, name in enumerate(scope.names, scope.first):
                if name is not None:
                    value = frame.slots[slot]
                    found[name] = value.value if type(value) is Cell else value
    return found


def _is_set(value: Value) -> bool:
    return value is not UNSET and type(value) is not Iteration
