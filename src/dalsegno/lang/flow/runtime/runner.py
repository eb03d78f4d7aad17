"""Runs a script's frames until it must wait or ends.

It stops at an ``await`` that must wait, at the end of the program, at an uncaught error, and at the end of a budget.
The machine (machine.py) is a runner that can be started, stored and resumed.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from dalsegno.lang.errors import ScriptThrow, shortened
from dalsegno.lang.expressions.expression import Entropy
from dalsegno.lang.flow.program import FlowProgram
from dalsegno.lang.flow.runtime.instructions import assign, path_of, root_of
from dalsegno.lang.flow.runtime.outcomes import present, uncaught, with_stack
from dalsegno.lang.flow.snapshot.format import decoded
from dalsegno.lang.runtime.effects import ErrorValue, Ok, Outcome
from dalsegno.lang.runtime.frames import CallbackFrame, Frame
from dalsegno.lang.runtime.interpreter import Interpreter
from dalsegno.lang.runtime.limits import BYTES_PER_OBJECT, NEVER, TURN, Limits, SliceUsed
from dalsegno.lang.runtime.pending_effects import Requests
from dalsegno.lang.runtime.promises import Group, Promise, Verdict, leaves, settle
from dalsegno.lang.stdlib import SortFrame
from dalsegno.lang.stdlib.orchestration import configured_function
from dalsegno.lang.values.kinds import UNSET, Configured, Host, Vacant, Value
from dalsegno.lang.values.to_text import plain

_ERROR = 10
"""The cost of creating an error, in units of work and in small values; the next instruction checks the meter."""

Status: TypeAlias = Literal["running", "suspended", "completed", "failed", "paused"]
Known: TypeAlias = dict[int, tuple[int, Outcome]]


class _Pause(Exception):
    """Stop before an instruction that needs a value stored elsewhere."""

    def __init__(self, blob: str) -> None:
        self.blob = blob


class Runner(Interpreter):
    """Frames, variables and requests of one execution."""

    __slots__ = (
        "cut_short", "entropy", "error", "globals", "known", "limits", "missing", "needed", "program", "raised",
        "requests", "result", "status",
    )  # fmt: skip

    def __init__(self, program: FlowProgram, limits: Limits, entropy: Entropy) -> None:
        self.program = program
        self.unit = program.unit
        self.steps = program.steps
        self.host = Host(limits, 0.0, entropy, span=TURN)
        self.fuel = self.granted = 0
        self.frames = []
        self.finished = True
        self.outcome = None
        self.limits = limits
        self.entropy = entropy
        self.status: Status = "running"
        self.result: Value = None
        self.error: ErrorValue | None = None
        self.cut_short = False
        """True if it failed without its ``catch`` and ``finally`` blocks."""
        self.raised: set[int] = set()
        """Numbers of the promises in awaits that have thrown since `take_raised`."""
        self.globals: dict[str, Value] = {}
        self.requests = Requests()
        self.known: Known = {}
        """Outcomes that the driver has delivered for this run."""
        self.missing: tuple[str, ...] = ()
        """Names of stored values that `provide` must supply before the machine can continue."""
        self.needed: tuple[str, ...] = ()
        """Names of stored values that will be missing as soon as the machine continues."""

    # running

    def prepare(self, now: float, budget: int | None) -> None:
        """Prepare a run.

        Limits apply per resume: the meter is renewed, except after a pause, which continues the same resume.

        The budget is the number of instructions and units of library work until the next pause.
        """
        host = self.host
        host.now, host.requests = now, self.requests
        meter = host.meter
        if self.status != "paused":
            meter.renew()
        left = NEVER if budget is None else meter.work_left - max(budget, 1)
        meter.mark = left if left > 0 else NEVER
        self.status = "running"
        self.finished = False

    def proceed(self) -> None:
        if self.needed:
            self.lack(self.needed)
        self.run()
        self.settle()
        if self.status != "paused":
            self.known = {}

    def run(self) -> None:
        while not self.finished:
            try:
                self.step_through()
            except ScriptThrow as thrown:
                self.catch(thrown)
            except _Pause as pause:
                self.pause(pause)
            except SliceUsed:
                self.lack(())
            except ArithmeticError:
                self.throw(self.problem("TypeError", "a number is too large for this operation"))
            except (MemoryError, RecursionError):
                self.cut(self.problem("LimitExceeded", "the script needs more memory than there is"))
            except Exception as bug:  # noqa: BLE001  # a bug of ours fails this execution, not the worker
                self.cut(self.problem("INTERNAL_ERROR", f"{type(bug).__name__}: {bug}"))

    def complete(self, outcome: Value) -> None:
        """Store the result of the main function. Its frame stays, so that an error knows its line."""
        self.result = plain(self.host, outcome, "the result")
        self.status = "completed"
        self.finished = True

    def fail(self, error: ErrorValue) -> None:
        self.error = error
        self.status = "failed"
        self.finished = True

    def cut(self, error: ErrorValue) -> None:
        """Fail, bypassing every ``catch`` and ``finally`` of the script."""
        self.cut_short = True
        self.fail(error)

    def catch(self, thrown: ScriptThrow) -> None:
        """Handle an error of the language. A script cannot catch an exceeded limit."""
        error = self.problem(thrown.code, thrown.message)
        if thrown.code == "LimitExceeded":
            self.cut(error)
        else:
            self.throw(error)

    def problem(self, code: str, message: str) -> ErrorValue:
        stack = self.trace()
        meter = self.host.meter
        meter.work_left -= _ERROR + len(self.frames) // 8 + 2 * len(stack)
        meter.bytes_left -= len(message) + (_ERROR + len(stack)) * BYTES_PER_OBJECT
        return ErrorValue(code, message, stack=stack)

    def pause(self, pause: _Pause) -> None:
        frame = self.frames[-1]
        if isinstance(frame, Frame):
            frame.position -= 1
        self.lack((pause.blob,))

    def lack(self, blobs: tuple[str, ...]) -> None:
        self.missing = blobs
        self.status = "paused"
        self.finished = True

    def exhausted(self) -> None:
        if self.host.meter.mark > 0:
            raise SliceUsed
        super().exhausted()

    # awaiting

    @property
    def top(self) -> Frame:
        """The top frame, where it is known to be a function of the program."""
        return self.frames[-1]  # type: ignore[return-value]  # a call of `cast` takes as long as this does

    def wait_for(self, frame: Frame, promise: Promise | Group) -> bool:
        """Execute AWAIT: continue if the promise is settled; else suspend until the driver delivers the outcome."""
        if len(self.frames) > 1 and any(type(below) is SortFrame for below in self.frames):
            raise ScriptThrow("TypeError", "the function given to sort() cannot await")
        known = self.known
        if isinstance(promise, Group):
            self.host.meter.items(promise.size, "await")
        if isinstance(promise, Promise):
            decided = promise.number in known
        else:
            decided = all(leaf.number in known for leaf in leaves(promise))
        verdict = settle(promise, known, present) if decided else None
        if verdict is not None:
            return self.conclude(frame, promise, verdict)
        frame.position -= 1
        self.status = "suspended"
        self.finished = True
        return True

    def conclude(self, frame: Frame, promise: Promise | Group, verdict: Verdict) -> bool:
        """Replace the promise by its result, or throw. Return true if that may have changed the top frame."""
        if isinstance(promise, Group) and promise.cancel:
            promise.cancel = False
            for leaf in leaves(promise):
                if leaf.number not in self.known:
                    self.requests.cancel(leaf)
        if isinstance(verdict.outcome, Ok):
            frame.stack[-1] = verdict.outcome.value
            return False
        self.raised.update([leaf.number for leaf in leaves(promise)])
        self.throw(with_stack(verdict.outcome.error, self.trace()))
        return True

    # throwing

    def throw(self, value: Value) -> None:
        """Continue at the innermost enclosing ``catch`` or ``finally``; without one the machine fails."""
        frames = self.frames
        for depth in range(len(frames) - 1, -1, -1):
            frame = frames[depth]
            if isinstance(frame, Frame):
                position = frame.position - 1
                for handler in frame.function.protected_ranges:
                    if handler.start <= position < handler.stop:
                        del frames[depth + 1 :]
                        frame.stack[:] = [value]
                        frame.position = handler.target
                        return
        self.fail(uncaught(self.host, value, self.trace()))

    def trace(self) -> tuple[str, ...]:
        """Return the frames of the program, innermost first; of a deep recursion only the inner ones."""
        program = self.program
        frames = [frame for frame in reversed(self.frames) if isinstance(frame, Frame)]
        shown = (f"{frame.function.name} ({program.name}:{program.line(frame.offset)})" for frame in frames)
        return shortened(shown, len(frames))

    # services for instructions

    def concluded(self, frame: CallbackFrame) -> Value:
        """Return the result of a library function. If it sorted a variable's list, store the result in the variable."""
        result = frame.result(self.host)
        if type(frame) is SortFrame and frame.place >= 0:
            place = self.unit.places[frame.place]
            holder, key = root_of(self, self.top, place)
            path = path_of(place, frame.keys)
            if path:
                assign(self.host.meter, holder, key, path, result)
            else:
                holder[key] = result
        return result

    def call_member(self, receiver: Value, name: str, arguments: list[Value]) -> bool:
        if type(receiver) is Configured:
            return self.call(configured_function(receiver, name), arguments)
        return super().call_member(receiver, name, arguments)

    def occupy(self, holder: Any, key: Any, vacancy: Vacant, name: str) -> Value:
        if vacancy is UNSET:
            return super().occupy(holder, key, vacancy, name)
        value = decoded(vacancy)
        if value is vacancy:
            raise _Pause(vacancy.blob)
        holder[key] = value
        self.remember(value, vacancy)
        return value

    def remember(self, value: Value, vacancy: Vacant) -> None:
        """Note that a value from a snapshot is now in use."""

    def occupy_global(self, name: str, vacancy: Vacant) -> Value:
        if vacancy is UNSET:
            raise ScriptThrow("ReferenceError", f"Undefined variable '{name}'")
        return self.occupy(self.globals, name, vacancy, name)
