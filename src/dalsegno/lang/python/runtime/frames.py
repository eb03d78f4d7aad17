"""A call in progress: its position, its stack and the cells of its variables."""

from __future__ import annotations

from types import CellType, FunctionType
from typing import Any

from dalsegno.lang.python.code import FunctionCode
from dalsegno.lang.python.program import PythonProgram


class Frame:
    """The frame of one call.

    ``handled`` lists the exceptions being handled, innermost last; an entry is None where a ``finally`` runs without an
    exception.
    """

    __slots__ = ("cells", "code", "handled", "number", "position", "stack")

    def __init__(self, number: int, code: FunctionCode, cells: list[CellType]) -> None:
        self.number = number
        """The number of its code in the program."""
        self.code = code
        self.cells = cells
        self.position = 0
        self.stack: list[Any] = []
        self.handled: list[BaseException | None] = []

    @property
    def line(self) -> int:
        """Return the line of the instruction that is running or, while suspended, will run next."""
        lines = self.code.lines
        return lines[min(self.position, len(lines) - 1)]

    def variables(self) -> dict[str, Any]:
        """Return the function's own variables that have a value. Those of the compiler have an ``@`` in their name."""
        found: dict[str, Any] = {}
        for name, cell in zip(self.code.variables[: self.code.own], self.cells, strict=False):
            try:
                value = cell.cell_contents
            except ValueError:
                continue
            if "@" not in name:
                found[name] = value
        return found

    def native(self, program: PythonProgram, fragment: int) -> FunctionType:
        """Return a fragment as a function that shares its variables with this frame."""
        code, indexes = program.fragments[self.number][fragment]
        cells = self.cells
        closure = tuple([cells[index] for index in indexes])
        return FunctionType(code, program.surroundings.globals, code.co_name, None, closure)
