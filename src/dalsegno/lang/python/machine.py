"""The machine of Python workflows as its driver sees it: start, resume, interrupt, store, load.

It does no I/O. It is told the time and how things went, and says by effects what it wants. It may stay in memory and be
resumed directly, or be stored at any stop and go on in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dalsegno.errors import DalSegnoError, LimitExceeded
from dalsegno.lang.effects import (
    TIME_LIMITED,
    Awaitable,
    Effect,
    ErrorValue,
    Outcome,
    WaitingSignal,
    promise_number,
)
from dalsegno.lang.limits import DEFAULT_LIMITS, Limits
from dalsegno.lang.promises import awaitable, ranges
from dalsegno.lang.python.errors import NotStorable
from dalsegno.lang.python.exceptions import revive
from dalsegno.lang.python.inputs import arguments_for
from dalsegno.lang.python.interpreter import Interpreter
from dalsegno.lang.python.program import PythonProgram
from dalsegno.lang.python.showing import shown
from dalsegno.lang.python.snapshot import Frozen, blobs_in, freeze, thaw
from dalsegno.lang.requests import Requests

MAX_SNAPSHOT = 16 * 1024 * 1024
"""Bytes of a stored machine, roughly; more fails the execution."""


class PythonMachine(Interpreter):
    """One execution of a Python workflow."""

    native = True
    """Resuming runs user code, which belongs on a thread of its own."""
    missing: tuple[str, ...] = ()
    """Nothing is loaded later: `loads` takes all blobs."""

    def __init__(
        self,
        program: PythonProgram,
        context: Mapping[str, Any] | None = None,
        now: float = 0.0,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        execution = str((context or {}).get("executionId", ""))
        super().__init__(program, Requests(execution), limits, now)
        self.context = context
        self._frozen: Frozen | None = None

    # -- going on ---------------------------------------------------------------------------------------------

    @classmethod
    def start(
        cls,
        program: PythonProgram,
        inputs: Any = None,
        context: Mapping[str, Any] | None = None,
        *,
        now: float = 0.0,
        budget: int | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> PythonMachine:
        """Runs to the first stop. An input that does not fit fails the execution."""
        machine = cls(program, context, now, limits)
        try:
            arguments = arguments_for(program, inputs)
        except DalSegnoError as error:
            machine.stop_failed(ErrorValue(type(error).__name__, str(error)))
            return machine
        machine.push(0, arguments, ())
        machine._go_on(budget)
        return machine

    def resume(self, outcomes: Mapping[str, Outcome], *, now: float = 0.0, budget: int | None = None) -> bool:
        """Goes on with what has become known, in the order in which it happened. False if there is nothing to do."""
        if self.status not in ("suspended", "paused"):
            return False
        if self.status == "suspended":
            self.known.clear()
        for promise, outcome in outcomes.items():
            number = _number(promise)
            if number is not None and number not in self.known:
                self.known[number] = (len(self.known), outcome)
        self.now = now
        self._go_on(budget)
        return True

    def interrupt(self, error: ErrorValue, *, now: float = 0.0, budget: int | None = None) -> bool:
        """Raises the error at the ``await`` where the machine is suspended."""
        if self.status != "suspended":
            return False
        self.known.clear()
        self.now = now
        self.frames[-1].position += 1
        self.raise_here(revive(error, self.program.naming))
        if self.frames:
            self._go_on(budget)
        return True

    def _go_on(self, budget: int | None) -> None:
        self._frozen = None
        before = len(self.requests.effects)
        self.run(budget)
        if self.status == "suspended":
            self._keep(before)

    def _keep(self, before: int) -> None:
        """What cannot be stored fails here, at the await, and what this run asked for is not done."""
        try:
            frozen = freeze(self)
            if frozen.size > MAX_SNAPSHOT:
                raise LimitExceeded(
                    f"the workflow's variables take {frozen.size:,} bytes at the await in line {self.line}; "
                    f"the limit is {MAX_SNAPSHOT:,}. Keep large data elsewhere and pass a reference"
                )
        except (NotStorable, LimitExceeded) as error:
            self._fail_unstored(before, type(error).__name__, str(error))
        except Exception as error:  # noqa: BLE001 - of a class of the user that was asked for its state
            kind = type(error).__name__
            message = f"the workflow's variables cannot be stored across the await in line {self.line}: {kind}: {error}"
            self._fail_unstored(before, NotStorable.__name__, message)
        else:
            self._frozen = frozen

    def _fail_unstored(self, before: int, code: str, message: str) -> None:
        del self.requests.effects[before:]
        self.stop_failed(ErrorValue(code, message, stack=self.places()))

    # -- what the driver looks at -----------------------------------------------------------------------------

    @property
    def awaiting(self) -> Awaitable | None:
        """What a suspended machine waits for, time limits included."""
        if self.status != "suspended" or self.pending is None:
            return None
        timers = [
            timeout.promise for timeout in self.timeouts if timeout.promise is not None and not timeout.fired
        ]
        wanted = awaitable(self.pending)
        if not timers or wanted is None:
            return wanted
        limits = [item for timer in timers if (item := awaitable(timer)) is not None]
        return Awaitable("race", items=(wanted, *limits), shape=TIME_LIMITED)

    def take_effects(self) -> list[Effect]:
        effects, self.requests.effects = self.requests.effects, []
        self._frozen_without_requests()
        return effects

    def take_logs(self) -> list[tuple[str, str]]:
        logs, self.requests.logs = self.requests.logs, []
        self._frozen_without_requests()
        return logs

    def _frozen_without_requests(self) -> None:
        if self._frozen is not None:
            self._frozen.update(self.requests)

    def reachable(self) -> tuple[tuple[int, int], ...]:
        """Numbers of the promises that the machine can still ask for, as half-open ranges."""
        return ranges(set(self._state().promises))

    def waiting_signals(self) -> tuple[WaitingSignal, ...]:
        """Signals it may still wait for, in the order of their making."""
        return self._state().signals()

    def variables(self) -> dict[str, Any]:
        """What the workflow's variables hold, as plain data; inner ones hide outer ones."""
        found: dict[str, Any] = {}
        for frame in self.frames:
            for name, cell in zip(frame.code.variables[: frame.code.own], frame.cells, strict=False):
                try:
                    value = cell.cell_contents
                except ValueError:
                    continue
                if "@" not in name:
                    found[name] = shown(value)
        return found

    def provide(self, blobs: Mapping[str, bytes]) -> None:
        """Nothing is ever missing."""

    # -- storing ----------------------------------------------------------------------------------------------

    def dumps(self, put: Callable[[bytes], str] | None = None) -> bytes:
        """The machine as bytes. A suspended one can always be stored; between two awaits `NotStorable` is possible."""
        return self._state().to_bytes(put)

    @classmethod
    def loads(
        cls,
        program: PythonProgram,
        data: bytes,
        *,
        blobs: Mapping[str, bytes] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> PythonMachine:
        """Raises `SnapshotError` for anything that is no snapshot of this program."""
        machine = cls(program, None, 0.0, limits)
        thaw(machine, data, blobs or {})
        return machine

    blobs_in = staticmethod(blobs_in)

    def _state(self) -> Frozen:
        if self._frozen is None:
            self._frozen = freeze(self)
        return self._frozen


def _number(id: str) -> int | None:
    try:
        return promise_number(id)
    except ValueError:
        return None
