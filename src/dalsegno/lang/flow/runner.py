"""Runs a script's frames: until an ``await`` must wait, the end, an uncaught error, or the end of a budget.

The machine (machine.py) is a runner that can be started, stored and resumed.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from dalsegno.lang.effects import ErrorValue, Ok, Outcome
from dalsegno.lang.errors import ScriptThrow
from dalsegno.lang.expression import Entropy
from dalsegno.lang.flow.places import assign, path_of, root_of
from dalsegno.lang.flow.program import FlowProgram
from dalsegno.lang.flow.results import present, uncaught, with_stack
from dalsegno.lang.flow.unpacking import decoded
from dalsegno.lang.frames import CallbackFrame, Frame
from dalsegno.lang.interpreter import Interpreter
from dalsegno.lang.leaving import plain
from dalsegno.lang.limits import BYTES_PER_OBJECT, NEVER, TURN, Limits, SliceUsed
from dalsegno.lang.promises import Group, Promise, Verdict, leaves, settle
from dalsegno.lang.requests import Requests
from dalsegno.lang.stacks import shortened
from dalsegno.lang.stdlib import SortFrame
from dalsegno.lang.stdlib.orchestration import configured_function
from dalsegno.lang.values import UNSET, Configured, Host, Vacant, Value

_ERROR = 10
"""Units of work, and small values, that making an error takes; what is left is looked at by the next instruction."""

Status: TypeAlias = Literal["running", "suspended", "completed", "failed", "paused"]
Known: TypeAlias = dict[int, tuple[int, Outcome]]


class _Pause(Exception):
    """Stop before an instruction that needs a value that is stored elsewhere."""

    def __init__(self, blob: str) -> None:
        self.blob = blob


class Runner(Interpreter):
    """Frames, variables and requests of one execution."""

    __slots__ = (
        "entropy", "error", "globals", "known", "limits", "missing", "needed", "program", "requests", "result",
        "status",
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
        self.globals: dict[str, Value] = {}
        self.requests = Requests()
        self.known: Known = {}
        """Outcomes told by the driver, while the machine runs on them."""
        self.missing: tuple[str, ...] = ()
        """Names of stored values that `provide` must give before the machine can go on."""
        self.needed: tuple[str, ...] = ()
        """Those that will be missing as soon as the machine goes on."""

    # running

    def prepare(self, now: float, budget: int | None) -> None:
        """Limits are per resume: the meter begins anew. Going on after a pause is the same resume still. The budget
        is what instructions and the work of library functions may come to before the next pause."""
        host = self.host
        host.now, host.requests = now, self.requests
        meter = host.meter
        if self.status != "paused":
            meter.renew()
        left = NEVER if budget is None else meter.work_left - max(budget, 1)
        meter.mark = left if left > 0 else NEVER
        self.status = "running"
        self.finished = False

    def go_on(self) -> None:
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
                self.fail(self.problem("LimitExceeded", "the script needs more memory than there is"))
            except Exception as bug:  # noqa: BLE001  # a bug of ours fails this execution, not the worker
                self.fail(self.problem("INTERNAL_ERROR", f"{type(bug).__name__}: {bug}"))

    def complete(self, outcome: Value) -> None:
        """The main function returned; its frame stays, so that an error knows its line."""
        self.result = plain(self.host, outcome, "the result")
        self.status = "completed"
        self.finished = True

    def fail(self, error: ErrorValue) -> None:
        self.error = error
        self.status = "failed"
        self.finished = True

    def catch(self, thrown: ScriptThrow) -> None:
        """An error of the language. Limits are no business of the script's: it cannot catch them."""
        error = self.problem(thrown.code, thrown.message)
        if thrown.code == "LimitExceeded":
            self.fail(error)
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
        """The frame on top, where it is known to be a function of the program."""
        return self.frames[-1]  # type: ignore[return-value]  # a call of `cast` takes as long as this does

    def wait_for(self, frame: Frame, promise: Promise | Group) -> bool:
        """AWAIT: go on if everything about the promise is known; else suspend and let the driver tell."""
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
        """Put the result in the promise's place, or throw; true if that may have changed the frame on top."""
        if isinstance(promise, Group) and promise.cancel:
            promise.cancel = False
            for leaf in leaves(promise):
                if leaf.number not in self.known:
                    self.requests.cancel(leaf)
        if isinstance(verdict.outcome, Ok):
            frame.stack[-1] = verdict.outcome.value
            return False
        self.throw(with_stack(verdict.outcome.error, self.trace()))
        return True

    # throwing

    def throw(self, value: Value) -> None:
        """Go on at the innermost ``catch`` or ``finally`` around what runs; without one the machine fails."""
        frames = self.frames
        for depth in range(len(frames) - 1, -1, -1):
            frame = frames[depth]
            if isinstance(frame, Frame):
                position = frame.position - 1
                for shelter in frame.function.shelters:
                    if shelter.start <= position < shelter.stop:
                        del frames[depth + 1 :]
                        frame.stack[:] = [value]
                        frame.position = shelter.target
                        return
        self.fail(uncaught(self.host, value, self.trace()))

    def trace(self) -> tuple[str, ...]:
        """Frames of the program, innermost first; of a deep recursion the inner ones."""
        program = self.program
        frames = [frame for frame in reversed(self.frames) if isinstance(frame, Frame)]
        shown = (f"{frame.function.name} ({program.name}:{program.line(frame.offset)})" for frame in frames)
        return shortened(shown, len(frames))

    # what instructions ask

    def concluded(self, frame: CallbackFrame) -> Value:
        """Where a variable's list was sorted, the variable gets the result."""
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
        """A value came from a snapshot and is in use now."""

    def occupy_global(self, name: str, vacancy: Vacant) -> Value:
        if vacancy is UNSET:
            raise ScriptThrow("ReferenceError", f"Undefined variable '{name}'")
        return self.occupy(self.globals, name, vacancy, name)
