"""The interpreter of Python workflows: frames, the instruction loop, exception unwinding, awaits and time limits.

It calls user code. An exception that user code raises is a value to the machine: the engine runs user code in
threads, which Ctrl+C does not interrupt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import CellType
from typing import Any, Literal, TypeAlias

import msgspec

from dalsegno.lang.errors import shortened
from dalsegno.lang.python.compile.fragments import TICK
from dalsegno.lang.python.compile.unsupported import not_a_task
from dalsegno.lang.python.durable_calls import CallKind, Durable, enter_machine, leave_machine
from dalsegno.lang.python.errors import NAME_MISSING, LimitReached, missing_name
from dalsegno.lang.python.exceptions import error_value
from dalsegno.lang.python.program import PythonProgram
from dalsegno.lang.python.requests import PayloadRefused
from dalsegno.lang.python.runtime.frames import Frame
from dalsegno.lang.python.runtime.instructions import HANDLERS, unbound
from dalsegno.lang.python.runtime.nested import NestedCall
from dalsegno.lang.python.runtime.outcomes import value_of
from dalsegno.lang.python.timeouts import Timeout, message
from dalsegno.lang.python.traces import TRACE, Entry, followed, formatted, passed, remember, strip, trace_of
from dalsegno.lang.python.values.decisions import promise_name
from dalsegno.lang.python.values.payload_types import type_text
from dalsegno.lang.python.values.typed_values import to_plain
from dalsegno.lang.runtime.effects import APPROVAL, Err, ErrorValue, Outcome
from dalsegno.lang.runtime.limits import Limits
from dalsegno.lang.runtime.pending_effects import Requests
from dalsegno.lang.runtime.promises import AnyPromise, Promise, Verdict, leaves, settle

Status: TypeAlias = Literal["running", "suspended", "completed", "failed", "paused"]


class InstructionMeter:
    """Counts the instructions of one run.

    It is separate from the machine because nested functions of the workflow hold its `tick`.
    """

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    def tick(self) -> None:
        """Count one iteration of a loop in a fragment."""
        self.used += 1
        if self.used > self.limit:
            raise LimitReached


class Interpreter:
    """The state of one execution while it is in memory."""

    def __init__(
        self,
        program: PythonProgram,
        requests: Requests,
        limits: Limits,
        now: float,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        self.program = program
        self.context = context
        """Data of the driver about the execution; it is stored with the machine."""
        self.requests = requests
        self.limits = limits
        self.now = now
        self.status: Status = "paused"
        self.frames: list[Frame] = []
        self.timeouts: list[Timeout] = []
        """Active time limits, outermost first."""
        self.pending: AnyPromise | None = None
        """The promise that a suspended machine waits for."""
        self.known: dict[int, tuple[int, Outcome]] = {}
        """Outcomes that the driver has delivered since the last stop."""
        self.result: Any = None
        self.error: ErrorValue | None = None
        self.cut_short = False
        """True if it failed without its ``except`` and ``finally`` blocks."""
        self.raised: set[int] = set()
        """Numbers of the promises in awaits that have raised since `take_raised`."""
        self.handling: tuple[BaseException, ...] | None = None
        """The exceptions that it was handling when its turn began; None before the turn."""
        self.raises_again = False
        """True if it failed with an exception that it was handling before its turn."""
        self._meter = InstructionMeter(limits.instructions)
        self._tick_cell = CellType(self._meter.tick)
        self.last_line = program.functions[0].line

    # -- running ----------------------------------------------------------------------------------------------

    def run(self, budget: int | None) -> None:
        """Run until the machine stops. It pauses after ``budget`` instructions."""
        self.status, self.pending = "running", None
        self._meter.used = 0
        limit = self.limits.instructions
        stop = limit if budget is None else min(budget, limit)
        token = enter_machine(self)
        try:
            while self.status == "running":
                self._run_frame(self.frames[-1], stop)
        except Exception as error:  # noqa: BLE001 - not of user code: the state is damaged, or we are wrong
            message = f"the machine cannot continue: {type(error).__name__}: {error}"
            self.cut(ErrorValue("INTERNAL_ERROR", message))
        finally:
            leave_machine(token)

    def _run_frame(self, frame: Frame, stop: int) -> None:
        """Run the top frame until another frame is on top or the machine stops."""
        instructions = frame.code.instructions
        meter = self._meter
        try:
            while meter.used < stop:
                meter.used += 1
                op, a, b = instructions[frame.position]
                frame.position += 1
                if HANDLERS[op](self, frame, a, b):
                    return
            self._out_of_instructions()
        except LimitReached:
            self._out_of_instructions()
        except BaseException as error:  # noqa: BLE001 - user code may raise anything
            missing = missing_name(error, self.program.waits_for) if self.program.waits_for else None
            if missing is None:
                self.raise_here(error)
            else:
                self._wait_for_name(missing)

    def _wait_for_name(self, name: str) -> None:
        """Stop the run, bypassing every ``except`` of the workflow.

        The workflow's code is right, but the running program lacks the name.
        """
        message = f"line {self.line} uses '{name}', which the running program does not have"
        self.stop_failed(ErrorValue(NAME_MISSING, message, stack=self.places()))

    def _out_of_instructions(self) -> None:
        limit = self.limits.instructions
        if self._meter.used < limit:
            self.status = "paused"
        else:
            self._over_limit(
                f"more than {limit:,} instructions or rounds of loops without an await (line {self.line}); "
                "move long computations into a task, or raise Limits(instructions=…)"
            )

    def _over_limit(self, message: str) -> None:
        self.cut(ErrorValue("LimitExceeded", message, stack=self.places()))

    def cut(self, error: ErrorValue) -> None:
        """Fail the execution, bypassing every ``except`` and ``finally`` of the workflow."""
        self.cut_short = True
        self.stop_failed(error)

    # -- frames -----------------------------------------------------------------------------------------------

    def push(self, number: int, arguments: list[Any], captured: tuple[CellType, ...]) -> None:
        code = self.program.functions[number]
        own = len(arguments)
        cells = [CellType(argument) for argument in arguments]
        cells.extend([CellType() for _ in range(code.own - own)])
        cells.extend(captured)
        cells.extend([self.outside_cell(name) for name in code.variables[len(cells) :]])
        self.frames.append(Frame(number, code, cells))

    def outside_cell(self, name: str) -> CellType:
        return self._tick_cell if name == TICK else self.program.surroundings.cell(name)

    def enter(self, awaited: Any) -> None:
        """Enter an ``await`` of a value that is not a promise."""
        if not isinstance(awaited, NestedCall):
            raise TypeError(_not_awaitable(awaited))
        if awaited.awaited:
            raise RuntimeError("cannot reuse already awaited coroutine")
        if len(self.frames) >= self.limits.stack_depth:
            self._over_limit(
                f"more than {self.limits.stack_depth:,} calls of async functions inside each other (line {self.line}); "
                "end the recursion earlier, write it as a loop, or raise Limits(stack_depth=…)"
            )
            return
        awaited.awaited = True
        self.push(awaited.function.number, list(awaited.arguments), awaited.function.cells)

    @property
    def line(self) -> int:
        """Return the line that is running or that ran last."""
        return self.frames[-1].line if self.frames else self.last_line

    def line_of(self, frame: Frame) -> int:
        """Return the line of a frame: of an outer one that of its call."""
        return frame.line if frame is self.frames[-1] else self._place(frame)[2]

    def places(self) -> tuple[str, ...]:
        """Return the positions of all frames, innermost first."""
        places = map(self._place, reversed(self.frames))
        return shortened((f"{name} ({file}:{line})" for name, file, line in places), len(self.frames))

    def _place(self, frame: Frame) -> Entry:
        lines = frame.code.lines
        return (frame.code.name, self.program.stored.file, lines[max(0, min(frame.position, len(lines)) - 1)])

    # -- exceptions -------------------------------------------------------------------------------------------

    def current_exception(self) -> BaseException | None:
        """Return the innermost exception that an ``except`` or ``finally`` block is handling."""
        for frame in reversed(self.frames):
            for error in reversed(frame.handled):
                if error is not None:
                    return error
        return None

    def raise_here(self, error: BaseException) -> None:
        """Handle an exception raised by user code or by an await."""
        strip(error)
        frame = self.frames[-1]
        error = _as_local(error, frame)
        handled = self.current_exception()
        if error.__context__ is None and handled is not error:
            error.__context__ = handled
        remember(error, self._place(frame))
        self.throw(error)

    def throw(self, error: BaseException) -> None:
        """Unwind to the innermost block that handles exceptions, across as many frames as needed."""
        while self.frames:
            frame = self.frames[-1]
            at = frame.position - 1
            for handler in frame.code.handlers:
                if handler.start <= at < handler.stop:
                    del frame.stack[handler.depth :]
                    del frame.handled[handler.handled :]
                    frame.stack.append(error)
                    frame.position = handler.target
                    return
            self.last_line = self._place(frame)[2]
            self.frames.pop()
            error = _as_coroutine(error)
            if self.frames:
                passed(error, self._place(self.frames[-1]))
        self.raises_again = any(error is handled for handled in self.handling or ())
        told = formatted(error, self.program.source)
        value = error_value(error, {"traceback": told})
        if value.traceback is not None and followed(error) is not None:
            value = msgspec.structs.replace(
                value, traceback=told
            )  # that of the task alone would hide what the workflow was handling
        self.stop_failed(value)

    def stop_failed(self, error: ErrorValue) -> None:
        self.last_line = self.line
        self.status, self.error, self.pending = "failed", error, None
        self.frames.clear()
        self.timeouts.clear()

    def complete(self, value: Any) -> None:
        self.result = to_plain(value, "the result")
        self.last_line = self._place(self.frames[-1])[2]
        self.status, self.pending = "completed", None
        self.frames.clear()
        self.timeouts.clear()

    # -- awaits -----------------------------------------------------------------------------------------------

    def wait(self, frame: Frame, promise: AnyPromise) -> bool:
        """Put the promise's value in its place on the stack. Return True if it is not settled and the machine
        stops.
        """
        verdict = settle(promise, self.known)
        expired = self._expired(verdict)
        if expired is not None:
            expired.fired = True
            raise TimeoutError(message(expired))
        if verdict is None:
            frame.position -= 1
            self.status, self.pending = "suspended", promise
            return True
        if isinstance(verdict.outcome, Err):
            self.raised.update([leaf.number for leaf in leaves(promise)])
        try:
            frame.stack[-1] = value_of(promise, verdict, self.known, self.program)
        except PayloadRefused:
            if not isinstance(promise, Promise):
                raise
            frame.stack[-1] = again = self._next_request(promise)  # the workflow waits for one that fits
            return self.wait(frame, again)
        return False

    def _next_request(self, promise: Promise) -> Promise:
        again = self.requests.signal(promise.name or "", promise.due)
        again.type = promise.type
        return again

    def _expired(self, verdict: Verdict | None) -> Timeout | None:
        """Return the time limit that expired first, if it expired before the promise was settled."""
        found: tuple[int, Timeout] | None = None
        for timeout in self.timeouts:
            known = self.known.get(timeout.promise.number) if timeout.promise is not None else None
            if known is not None and not timeout.fired and (found is None or known[0] < found[0]):
                found = (known[0], timeout)
        if found is None or (verdict is not None and verdict.place < found[0]):
            return None
        return found[1]

    def enter_timeout(self, timeout: Timeout) -> None:
        if timeout in self.timeouts:
            raise RuntimeError("this timeout() has been entered already; make a new one for each block")
        timeout.fired = False
        timeout.promise = None if timeout.seconds is None else self.timer(self.now + timeout.seconds)
        self.timeouts.append(timeout)

    def leave_timeout(self, timeout: Timeout) -> None:
        self.timeouts.remove(timeout)
        promise, timeout.promise = timeout.promise, None
        if promise is not None and not timeout.fired:
            self.requests.cancel(promise)

    # -- services for durable callables and verbs (see `durable_calls.Caller`) --------------------------------

    def call(self, target: Durable[Any, Any], inputs: Any) -> Promise:
        self.program.add_durable(target)
        return self.call_by_name(target.kind, target.name, inputs, target.options)

    def call_by_name(self, kind: CallKind, name: str, inputs: Any, options: Mapping[str, Any]) -> Promise:
        make = self.requests.task if kind == "task" else self.requests.workflow
        return make(name, inputs, options)

    def start_detached(self, name: str, inputs: Any, options: Mapping[str, Any]) -> str:
        return self.requests.detached_workflow(name, inputs, options)

    def timer(self, due: float) -> Promise:
        return self.requests.timer(due)

    def wait_for_signal(self, name: str, due: float | None, type: Any = None) -> Promise:
        text = None if type is None else type_text(type, self.program.naming)
        promise = self.requests.signal(name, due)
        promise.type = text
        return promise

    def wait_for_request(self, name: str, due: float | None, type: str | None = None) -> Promise:
        promise = self.requests.request(name, due)
        promise.type = type
        return promise

    def type_text(self, type: Any, verb: str) -> str:
        return type_text(type, self.program.naming, verb)

    def reply(self, id: str, name: str, value: Any) -> None:
        self.requests.reply(id, name, value)

    def reject(self, id: str, name: str, message: str) -> None:
        self.requests.reject(id, name, message)

    def share_limit(self, promises: Sequence[Promise], most: int) -> None:
        self.requests.share_limit(promises, most)

    def ask_people(self, asked: Any, form: type[Any] | None) -> Promise:
        name = promise_name(form, self.program.naming)
        promise = self.requests.task(APPROVAL, asked, {})
        promise.name = name
        return promise

    def cancel(self, promise: Promise) -> None:
        if promise.number not in self.known:
            self.requests.cancel(promise)

    def set_tags(self, tags: Mapping[str, str | None]) -> None:
        self.requests.set_tags(tags)

    def checkpoint(self, name: str) -> None:
        self.requests.checkpoint(name)

    def publish(self, key: str, value: Any) -> None:
        self.requests.publish(key, value)

    def write_stream(self, stream: str, chunk: Any) -> None:
        self.requests.write_stream(stream, chunk)

    def close_stream(self, stream: str) -> None:
        self.requests.close_stream(stream)

    def log(self, level: str, message: str) -> None:
        self.requests.log(level, message)


def _as_local(error: BaseException, frame: Frame) -> BaseException:
    """Turn Python's error about an unbound free variable into the one about a local variable.

    Fragments see the workflow's variables as free variables; to the workflow's author they are local.
    """
    traceback = error.__traceback__
    if type(error) is not NameError or traceback is None or traceback.tb_next is not None:
        return error
    own = frame.code.variables[: frame.code.own]
    if error.name not in own or "free variable" not in str(error):
        return error
    return unbound(frame, error.name).with_traceback(traceback)


def _as_coroutine(error: BaseException) -> BaseException:
    """Convert an exception that leaves an async function so that it does not look like the end of an iteration."""
    if not isinstance(error, StopIteration):
        return error
    made = RuntimeError("coroutine raised StopIteration")
    made.__cause__ = error
    made.__dict__[TRACE] = trace_of(error)
    return made


def _not_awaitable(value: Any) -> str:
    kind = type(value).__name__
    close = getattr(value, "close", None)
    if hasattr(value, "cr_code") and close is not None:
        close()
        return not_a_task(value.__name__)
    if hasattr(value, "__await__"):
        return (
            f"a workflow can await tasks, workflows, timers and signals, but no {kind}: do that inside a task"
        )
    if isinstance(value, str):
        return "object str can't be used in 'await' expression (start() gives the execution id at once)"
    return f"object {kind} can't be used in 'await' expression"
