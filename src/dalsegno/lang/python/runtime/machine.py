"""The machine of Python workflows, as its driver uses it: start, resume, interrupt, store, load.

The machine does no I/O. The driver passes in the time and the outcomes; the machine answers with effects. It may stay
in memory and be resumed directly, or be stored at any stop and be resumed in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dalsegno.errors import DalSegnoError, LimitExceeded
from dalsegno.lang.python.errors import NotStorable
from dalsegno.lang.python.exceptions import revive
from dalsegno.lang.python.program import PythonProgram
from dalsegno.lang.python.runtime.interpreter import Interpreter
from dalsegno.lang.python.runtime.outcomes import shown
from dalsegno.lang.python.snapshot import Frozen, blobs_in, freeze, thaw
from dalsegno.lang.python.values.inputs import arguments_for
from dalsegno.lang.runtime.effects import (
    TIME_LIMITED,
    Awaitable,
    Effect,
    ErrorValue,
    Outcome,
    WaitingSignal,
    promise_number,
)
from dalsegno.lang.runtime.limits import DEFAULT_LIMITS, Limits
from dalsegno.lang.runtime.machine_state import FrameState, MachineState, promise_states
from dalsegno.lang.runtime.pending_effects import Requests
from dalsegno.lang.runtime.promises import awaitable, ranges

MAX_SNAPSHOT = 16 * 1024 * 1024
"""Approximate limit of a stored machine in bytes; a larger one fails the execution."""


class PythonMachine(Interpreter):
    """One execution of a Python workflow."""

    native = True
    """Resuming runs user code, which belongs on a thread of its own."""
    missing: tuple[str, ...] = ()
    """Always empty: `loads` takes all blobs."""

    def __init__(
        self,
        program: PythonProgram,
        context: Mapping[str, Any] | None = None,
        now: float = 0.0,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        execution = str((context or {}).get("executionId", ""))
        super().__init__(program, Requests(execution), limits, now, context)
        self._frozen: Frozen | None = None

    # -- running ----------------------------------------------------------------------------------------------

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
        """Run to the first stop. An input that does not match the parameters fails the execution."""
        machine = cls(program, context, now, limits)
        try:
            arguments = arguments_for(program, inputs)
        except DalSegnoError as error:
            machine.stop_failed(ErrorValue(type(error).__name__, str(error)))
            return machine
        machine.push(0, arguments, ())
        machine._proceed(budget)
        return machine

    def resume(self, outcomes: Mapping[str, Outcome], *, now: float = 0.0, budget: int | None = None) -> bool:
        """Deliver outcomes, in the order in which they happened, and resume. Return False if there is nothing to do."""
        if self.status not in ("suspended", "paused"):
            return False
        if self.status == "suspended":
            self.known.clear()
            if self.handling is None:
                self.handling = self._handled()
        for promise, outcome in outcomes.items():
            number = _number(promise)
            if number is not None and number not in self.known:
                self.known[number] = (len(self.known), outcome)
        self.now = now
        self._proceed(budget)
        return True

    def interrupt(self, error: ErrorValue, *, now: float = 0.0, budget: int | None = None) -> bool:
        """Raise the error at the ``await`` where the machine is suspended."""
        if self.status != "suspended":
            return False
        self.known.clear()
        self.now = now
        self.frames[-1].position += 1
        self.raise_here(revive(error, self.program.naming))
        if self.frames:
            self._proceed(budget)
        return True

    def _proceed(self, budget: int | None) -> None:
        self._frozen = None
        before = len(self.requests.effects)
        self.run(budget)
        if self.status == "suspended":
            self._keep(before)

    def _keep(self, before: int) -> None:
        """Freeze the machine.

        State that cannot be stored fails here, at the await, and the requests of this run are dropped.
        """
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
        self.cut(ErrorValue(code, message, stack=self.places()))

    # -- state for the driver ---------------------------------------------------------------------------------

    @property
    def awaiting(self) -> Awaitable | None:
        """Return what a suspended machine waits for, time limits included."""
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

    def take_raised(self) -> frozenset[int]:
        """Return the numbers of the promises in awaits that have raised since the last call: the turn is over."""
        raised, self.raised, self.handling = frozenset(self.raised), set(), None
        return raised

    def _handled(self) -> tuple[BaseException, ...]:
        return tuple([error for frame in self.frames for error in frame.handled if error is not None])

    def move_to(self, context: Mapping[str, Any]) -> None:
        """Let another execution continue the suspended machine."""
        self.requests.execution = str(context["executionId"])
        self.context = context
        self._frozen = freeze(self)

    def take_logs(self) -> list[tuple[str, str]]:
        logs, self.requests.logs = self.requests.logs, []
        self._frozen_without_requests()
        return logs

    def _frozen_without_requests(self) -> None:
        if self._frozen is not None:
            self._frozen.update(self.requests)

    def reachable(self) -> tuple[tuple[int, int], ...]:
        """Return the numbers of the promises that the machine can still await, as half-open ranges."""
        return ranges(set(self._state().promises))

    def waiting_signals(self) -> tuple[WaitingSignal, ...]:
        """Return the signals that it may still wait for, in order of creation."""
        return self._state().signals()

    def variables(self) -> dict[str, Any]:
        """Return the workflow's variables as plain data; inner ones hide outer ones."""
        found: dict[str, Any] = {}
        for frame in self.frames:
            found |= frame.variables()
        return {name: shown(value) for name, value in found.items()}

    def state(self) -> MachineState:
        """Return its functions with their variables, and its promises."""
        frames = [
            FrameState(
                frame.code.name,
                self.line_of(frame),
                {name: shown(value) for name, value in frame.variables().items()},
            )
            for frame in self.frames
        ]
        promises = promise_states(self._state().promises.values())
        return MachineState(tuple(frames), self.awaiting, self.requests.made, promises)

    def assign(self, name: str, value: Any) -> None:
        """Give a variable of the function that waits, or one that it shares with functions around it, another value:
        plain JSON. Raises LookupError, with the names that there are.
        """
        frame = self.frames[-1]
        names = frame.code.variables[: frame.code.own + len(frame.code.captured)]
        if name not in names or "@" in name:
            raise LookupError(", ".join(sorted(known for known in names if "@" not in known)))
        frame.cells[names.index(name)].cell_contents = value
        self._frozen = freeze(self)

    def provide(self, blobs: Mapping[str, bytes]) -> None:
        """Do nothing: no blob is ever missing."""

    # -- storing ----------------------------------------------------------------------------------------------

    def dumps(self, put: Callable[[bytes], str] | None = None) -> bytes:
        """Return the machine as bytes.

        A suspended machine can always be stored; between two awaits this may raise `NotStorable`.
        """
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
        """Load a stored machine. Raise `SnapshotError` for anything that is not a snapshot of this program."""
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
