"""What the machine's call stack consists of: plain data, so that it can be stored at any instruction.

A `Frame` is a running function of the program. A `CallbackFrame` is a library function that calls back, waiting for
its callback's answer; the kinds of it are in stdlib/callbacks.py. Neither uses Python's own stack.
"""

from __future__ import annotations

from typing import Protocol

from dalsegno.lang.code import FunctionCode
from dalsegno.lang.values import Cell, Host, Value


class Frame:
    """One running function: where it stands, its operands, its variables, and those it captured."""

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
        """Where in the source the instruction stands that ran last."""
        return self.function.offsets[max(0, self.position - 1)]


class CallbackFrame(Protocol):
    """A library function between two calls of its callback."""

    callback: Value

    def next_arguments(self, host: Host) -> list[Value] | None:
        """Arguments of the next call, or None when there is nothing left to ask."""

    def accept(self, host: Host, answer: Value) -> None:
        """What the callback returned."""

    def result(self, host: Host) -> Value:
        """The library function's own result."""
