"""The stack machine: runs a `CodeUnit` on explicit frames. No recursion: a call is a frame, also from a library
function that calls back, so the whole state is `frames` at every instruction.

`Evaluation` runs the expressions of graphs; the machine of scripts (flow/machine.py) is built on `Interpreter` too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dalsegno.lang.access import absent
from dalsegno.lang.code import CodeUnit
from dalsegno.lang.errors import ScriptThrow, limit_exceeded
from dalsegno.lang.frames import CallbackFrame, Frame
from dalsegno.lang.limits import SliceUsed
from dalsegno.lang.stdlib import call_method
from dalsegno.lang.steps import Steps
from dalsegno.lang.values import Builtin, Cell, FunctionValue, Host, Vacant, Value, kind_of

FUEL = 256
"""Instructions between two looks at the meter, which library functions charge in the meantime."""


class Interpreter:
    """Frames and what moves them. Those who inherit fill the slots, each in its own ``__init__``: graphs make one of
    these for every expression, so every call counts."""

    __slots__ = ("finished", "frames", "fuel", "granted", "host", "outcome", "steps", "unit")

    unit: CodeUnit
    steps: tuple[Steps, ...]
    host: Host
    fuel: int
    """How many instructions may still run before the meter is looked at."""
    granted: int
    """How many they were when the meter was looked at last; it has not been charged for them yet."""
    frames: list[Frame | CallbackFrame]
    finished: bool
    outcome: Value

    @property
    def offset(self) -> int:
        """Where the innermost function of the program stands."""
        for frame in reversed(self.frames):
            if isinstance(frame, Frame):
                return frame.offset
        return 0

    def step_through(self) -> None:
        """Run until the program ends, or `finished` is set for another reason, or something is raised."""
        while not self.finished:
            frame = self.frames[-1]
            if type(frame) is Frame:
                self.execute(frame)
            else:
                self.continue_callback(frame)  # type: ignore[arg-type]  # Frame has no subclass

    def execute(self, frame: Frame) -> None:
        """Run instructions of this frame until a call or a return changes which frame is on top."""
        steps = self.steps[frame.function.number]
        fuel = self.fuel
        try:
            while True:
                if fuel <= 0:
                    fuel = self.refuel()
                fuel -= 1
                handle, a, b = steps[frame.position]
                frame.position += 1
                if handle(self, frame, a, b):
                    return
        finally:
            self.fuel = fuel

    def settle(self) -> None:
        """Charge the meter for the instructions that ran since it was looked at last."""
        self.host.meter.work_left -= self.granted - self.fuel
        self.granted = self.fuel = 0

    def refuel(self) -> int:
        """Instructions to run before the meter is looked at again; raises if it has nothing left."""
        self.fuel = 0
        self.settle()
        left = self.host.meter.allowance()
        if left <= 0:
            self.exhausted()
        self.granted = min(left, FUEL)
        return self.granted

    def exhausted(self) -> None:
        """The meter has nothing left for the next instruction; raises."""
        raise self.host.meter.too_much_work()

    def continue_callback(self, frame: CallbackFrame) -> None:
        if self.fuel <= 0:
            self.fuel = self.refuel()
        self.fuel -= 1
        arguments = frame.next_arguments(self.host)
        if arguments is None:
            self.frames.pop()
            self.deliver(self.concluded(frame))
        else:
            self.call(frame.callback, arguments, is_callback=True)

    def concluded(self, frame: CallbackFrame) -> Value:
        """The result of a library function that has nothing left to ask."""
        return frame.result(self.host)

    def deliver(self, value: Value) -> None:
        """Hand a finished call's result to whoever waits for it."""
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
        """Call a function value; true if a new frame is on top."""
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
        """A variable was read whose value is not there: get it and put it there, or raise."""
        raise ScriptThrow("ReferenceError", f"'{name}' is used before it has a value")


class Evaluation(Interpreter):
    """One run of an expression. `step_through` leaves the result in ``outcome`` or raises `ScriptThrow`; `offset` then
    tells where."""

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
