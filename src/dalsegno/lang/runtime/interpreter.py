"""The stack machine: it runs a `CodeUnit` on explicit frames.

There is no recursion: a call is a frame, also from a library function that calls back, so ``frames`` is the whole state
at every instruction. `Evaluation` runs the expressions of graphs; the machine of scripts (flow/runtime/machine.py) is
also an `Interpreter`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dalsegno.lang.errors import ScriptThrow, limit_exceeded
from dalsegno.lang.runtime.code import CodeUnit
from dalsegno.lang.runtime.frames import CallbackFrame, Frame, Steps
from dalsegno.lang.runtime.limits import SliceUsed
from dalsegno.lang.stdlib import call_method
from dalsegno.lang.values.kinds import Builtin, Cell, FunctionValue, Host, Vacant, Value, kind_of
from dalsegno.lang.values.members import absent

FUEL = 256
"""Instructions between two checks of the meter, which library functions charge in the meantime."""


class Interpreter:
    """Frames and their execution.

    Subclasses fill the slots, each in its own ``__init__``: graphs create one instance per expression, so every call
    counts.
    """

    __slots__ = ("finished", "frames", "fuel", "granted", "host", "outcome", "steps", "unit")

    unit: CodeUnit
    steps: tuple[Steps, ...]
    host: Host
    fuel: int
    """The number of instructions left before the next check of the meter."""
    granted: int
    """The value of `fuel` at the last check of the meter, which has not been charged for it yet."""
    frames: list[Frame | CallbackFrame]
    finished: bool
    outcome: Value

    @property
    def offset(self) -> int:
        """The source offset of the innermost function of the program."""
        for frame in reversed(self.frames):
            if isinstance(frame, Frame):
                return frame.offset
        return 0

    def step_through(self) -> None:
        """Run until the program ends, `finished` is set for another reason, or an exception is raised."""
        while not self.finished:
            frame = self.frames[-1]
            if type(frame) is Frame:
                self.execute(frame)
            else:
                self.continue_callback(frame)  # type: ignore[arg-type]  # Frame has no subclass

    def execute(self, frame: Frame) -> None:
        """Run instructions of this frame until a call or a return changes the top frame."""
        steps = self.steps[frame.function.number]
        fuel = self.fuel
        try:
            while True:
                for fuel in range(fuel - 1, -1, -1):  # noqa: B007, B020 - what is left after each
                    handle, a, b = steps[frame.position]
                    frame.position += 1
                    if handle(self, frame, a, b):
                        return
                fuel = self.grant_fuel()
        finally:
            self.fuel = fuel

    def settle(self) -> None:
        """Charge the meter for the instructions since the last check."""
        self.host.meter.work_left -= self.granted - self.fuel
        self.granted = self.fuel = 0

    def grant_fuel(self) -> int:
        """Return the number of instructions until the next check of the meter; raise if nothing is left."""
        meter = self.host.meter
        meter.work_left = left = meter.work_left - self.granted
        if meter.mark > 0:
            left -= meter.mark
        if left <= 0:
            self.granted = self.fuel = 0
            self.exhausted()
        self.granted = self.fuel = min(left, FUEL)
        return self.fuel

    def exhausted(self) -> None:
        """Raise because the meter has nothing left for the next instruction."""
        raise self.host.meter.too_much_work()

    def continue_callback(self, frame: CallbackFrame) -> None:
        if self.fuel <= 0:
            self.fuel = self.grant_fuel()
        self.fuel -= 1
        arguments = frame.next_arguments(self.host)
        if arguments is None:
            self.frames.pop()
            self.deliver(self.concluded(frame))
        else:
            self.call(frame.callback, arguments, is_callback=True)

    def concluded(self, frame: CallbackFrame) -> Value:
        """Return the result of a library function that has no further calls to make."""
        return frame.result(self.host)

    def deliver(self, value: Value) -> None:
        """Deliver a finished call's result to its caller."""
        if not self.frames:
            self.finished = True
            self.outcome = value
            return
        frame = self.frames[-1]
        if isinstance(frame, Frame):
            frame.stack.append(value)
        else:
            frame.accept(self.host, value)

    def call(self, callee: Value, arguments: list[Value], is_callback: bool = False) -> bool:
        """Call a function value; return true if a new frame is on top."""
        if type(callee) is FunctionValue:
            self.enter(callee, arguments)
            return True
        if not isinstance(callee, Builtin):
            raise ScriptThrow("NOT_A_FUNCTION", f"a {kind_of(callee)} is not a function")
        if is_callback and callee.most is not None:
            arguments = arguments[: callee.most]
        check_argument_count(callee, len(arguments))
        host = self.host
        self.deliver(callee.call(host, arguments))
        if host.meter.work_left <= host.meter.mark:
            raise SliceUsed
        return False

    def call_member(self, receiver: Value, name: str, arguments: list[Value]) -> bool:
        """Call ``receiver.name(…)``: a function in an object, or a method of the value's kind."""
        if type(receiver) is dict:
            if name not in receiver:
                raise absent(receiver, name, "")
            return self.call(receiver[name], arguments)
        waiting = call_method(self.host, receiver, name, arguments, self.deliver)
        if waiting is None:
            meter = self.host.meter
            if meter.work_left <= meter.mark:
                raise SliceUsed
            return False
        self.push(waiting)
        return True

    def enter(self, function: FunctionValue, arguments: list[Value]) -> None:
        code = function.code
        fixed = code.parameters - 1 if code.has_rest else code.parameters
        slots = arguments[:fixed]
        slots.extend([None] * (code.variables - len(slots)))
        if code.has_rest:
            self.host.meter.items(max(0, len(arguments) - fixed), "'...'")
            slots[fixed] = arguments[fixed:]
        for slot in code.boxed_at_entry:
            slots[slot] = Cell(slots[slot])
        self.push(Frame(code, slots, function.cells, len(arguments)))

    def push(self, frame: Frame | CallbackFrame) -> None:
        limit = self.host.meter.limits.stack_depth
        if len(self.frames) >= limit:
            raise limit_exceeded(
                f"more than {limit:,} calls inside each other: end the recursion earlier, write it as a loop, "
                "or raise Limits(stack_depth=…)"
            )
        self.frames.append(frame)

    def occupy(self, holder: Any, key: Any, vacancy: Vacant, name: str) -> Value:
        """Load the value of a vacant variable that was read and store it there, or raise."""
        raise ScriptThrow("ReferenceError", f"'{name}' is used before it has a value")


class Evaluation(Interpreter):
    """One run of an expression.

    `step_through` stores the result in ``outcome`` or raises `ScriptThrow`; `offset` is then its position.
    """

    __slots__ = ("lookup", "variables")

    def __init__(
        self,
        unit: CodeUnit,
        steps: tuple[Steps, ...],
        host: Host,
        lookup: Callable[[str], Value],
        variables: Mapping[str, Value],
    ) -> None:
        self.unit = unit
        self.steps = steps
        self.host = host
        self.lookup = lookup
        self.variables = variables
        left = host.meter.work_left
        self.fuel = self.granted = FUEL if left >= FUEL else max(left, 0)
        self.finished = False
        main = unit.functions[0]
        self.frames = [Frame(main, [None] * main.variables, (), 0)]


def check_argument_count(builtin: Builtin, count: int) -> None:
    if count < builtin.least or (builtin.most is not None and count > builtin.most):
        wanted = str(builtin.least)
        if builtin.most is None:
            wanted = f"at least {builtin.least}"
        elif builtin.most != builtin.least:
            wanted = f"{builtin.least} to {builtin.most}"
        message = f"{builtin.name}() takes {wanted} argument{'' if wanted == '1' else 's'}, not {count}"
        raise ScriptThrow("WRONG_ARG_COUNT", message)
