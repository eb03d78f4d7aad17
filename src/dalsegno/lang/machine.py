"""The stack machine: runs a `CodeUnit` on explicit frames. No recursion: a call is a frame, also from a library
function that calls back, so the whole state is `frames` at every instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dalsegno.lang.code import CodeUnit
from dalsegno.lang.errors import ScriptThrow, limit_exceeded
from dalsegno.lang.frames import CallbackFrame, Frame
from dalsegno.lang.instructions import HANDLERS
from dalsegno.lang.values import Builtin, Cell, FunctionValue, Host, Value, kind_of


class Machine:
    """One run. `run` returns the result or raises `ScriptThrow`; `offset` then tells where."""

    __slots__ = ("finished", "frames", "fuel", "host", "lookup", "outcome", "unit", "variables")

    def __init__(
        self, unit: CodeUnit, host: Host, lookup: Callable[[str], Value], variables: Mapping[str, Value]
    ) -> None:
        self.unit = unit
        self.host = host
        self.lookup = lookup
        self.variables = variables
        self.fuel = host.meter.limits.instructions
        self.frames: list[Frame | CallbackFrame] = [Frame(unit.functions[0], [], 0)]
        self.finished = False
        self.outcome: Value = None

    @property
    def offset(self) -> int:
        """Where the innermost function of the program stands."""
        for frame in reversed(self.frames):
            if isinstance(frame, Frame):
                return frame.offset
        return 0

    def run(self) -> Value:
        while not self.finished:
            frame = self.frames[-1]
            if isinstance(frame, Frame):
                self.execute(frame)
            else:
                self.continue_callback(frame)
        return self.outcome

    def execute(self, frame: Frame) -> None:
        """Run instructions of this frame until a call or a return changes which frame is on top."""
        instructions = frame.function.instructions
        fuel = self.fuel
        try:
            while True:
                opcode, a, b = instructions[frame.position]
                frame.position += 1
                fuel -= 1
                if fuel < 0:
                    limit = self.host.meter.limits.instructions
                    raise limit_exceeded(f"more than {limit:,} instructions in one evaluation")
                if HANDLERS[opcode](self, frame, a, b):
                    return
        finally:
            self.fuel = fuel

    def continue_callback(self, frame: CallbackFrame) -> None:
        arguments = frame.next_arguments(self.host)
        if arguments is None:
            self.frames.pop()
            self.deliver(frame.result(self.host))
        else:
            self.fuel -= 1
            self.call(frame.callback, arguments, is_callback=True)

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
        if isinstance(callee, FunctionValue):
            self.enter(callee, arguments)
            return True
        if not isinstance(callee, Builtin):
            raise ScriptThrow("NOT_A_FUNCTION", f"a {kind_of(callee)} is not a function")
        if is_callback and callee.most is not None:
            arguments = arguments[: callee.most]
        check_argument_count(callee, len(arguments))
        self.deliver(callee.call(self.host, arguments))
        return False

    def enter(self, function: FunctionValue, arguments: list[Value]) -> None:
        code = function.code
        fixed = code.parameters - 1 if code.has_rest else code.parameters
        cells = [Cell(argument) for argument in arguments[:fixed]]
        cells.extend([Cell() for _ in range(code.variables - len(cells))])
        if code.has_rest:
            cells[fixed].value = arguments[fixed:]
        cells.extend(function.cells)
        self.push(Frame(code, cells, len(arguments)))

    def push(self, frame: Frame | CallbackFrame) -> None:
        limit = self.host.meter.limits.stack_depth
        if len(self.frames) >= limit:
            raise limit_exceeded(f"more than {limit} calls deep")
        self.frames.append(frame)


def check_argument_count(builtin: Builtin, count: int) -> None:
    if count < builtin.least or (builtin.most is not None and count > builtin.most):
        wanted = str(builtin.least)
        if builtin.most is None:
            wanted = f"at least {builtin.least}"
        elif builtin.most != builtin.least:
            wanted = f"{builtin.least} to {builtin.most}"
        message = f"{builtin.name}() takes {wanted} argument{'' if wanted == '1' else 's'}, not {count}"
        raise ScriptThrow("WRONG_ARG_COUNT", message)
