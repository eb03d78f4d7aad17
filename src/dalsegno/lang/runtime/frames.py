"""The entries of the machine's call stack: plain data, so that it can be stored at any instruction.

A `Frame` is a running function of the program. A `CallbackFrame` is a library function that waits for its callback's
answer; its kinds are in stdlib/callbacks.py. Neither uses Python's own stack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from dalsegno.lang.runtime.code import FunctionCode
from dalsegno.lang.values.kinds import Cell, Host, Value


class Frame:
    """One running function: its position, its operands, its variables, and those it captured."""

    __slots__ = ("argument_count", "cells", "function", "position", "slots", "stack")

    def __init__(
        self, function: FunctionCode, slots: list[Value], cells: tuple[Cell, ...], argument_count: int
    ) -> None:
        self.function = function
        self.position = 0
        self.stack: list[Value] = []
        self.slots = slots
        self.cells = cells
        self.argument_count = argument_count

    @property
    def offset(self) -> int:
        """The source offset of the instruction that ran last."""
        return self.function.offsets[max(0, self.position - 1)]


class CallbackFrame(Protocol):
    """A library function between two calls of its callback."""

    callback: Value

    def next_arguments(self, host: Host) -> list[Value] | None:
        """Return the arguments of the next call, or None if there are no further calls."""

    def accept(self, host: Host, answer: Value) -> None:
        """Take the callback's result."""

    def result(self, host: Host) -> Value:
        """Return the library function's own result."""


Handler: TypeAlias = "Callable[[Any, Frame, Any, Any], bool | None]"
"""The signature of an instruction's handler.

The first argument is the machine; some opcodes occur only in expressions or only in scripts. The last two are the
instruction's operands, or the objects they refer to (see prepared_code.py).
"""
Step: TypeAlias = "tuple[Handler, Any, Any]"
Steps: TypeAlias = "tuple[Step, ...]"
"""The prepared instructions of one function."""
