"""Collects the instructions of functions while the compiler walks the tree, and knows which cell a name means."""

from __future__ import annotations

from typing import TypeAlias

from dalsegno.lang.code import FunctionCode, Instruction
from dalsegno.lang.opcodes import Op

Constant: TypeAlias = bool | int | float | str | None


class ConstantPool:
    """Constants of one unit, each stored once."""

    def __init__(self) -> None:
        self.values: list[Constant] = []
        self.positions: dict[tuple[type, Constant], int] = {}

    def add(self, value: Constant) -> int:
        key = (type(value), value)
        position = self.positions.get(key)
        if position is None:
            position = self.positions[key] = len(self.values)
            self.values.append(value)
        return position


class FunctionAssembler:
    """One function being compiled; ``parent`` is the function around it."""

    def __init__(self, name: str, parent: FunctionAssembler | None = None) -> None:
        self.name = name
        self.parent = parent
        self.instructions: list[Instruction] = []
        self.offsets: list[int] = []
        self.variables: dict[str, int] = {}
        self.variable_count = 0
        self.captured: dict[str, int] = {}
        self.capture_sources: list[int] = []
        self.parameters = 0
        self.has_rest = False

    def emit(self, op: Op, a: int = 0, b: int = 0, *, at: int) -> int:
        """Append an instruction; returns its position, for `land`."""
        self.instructions.append((int(op), a, b))
        self.offsets.append(at)
        return len(self.instructions) - 1

    def land(self, *jumps: int) -> None:
        """Make these jumps go to the next instruction."""
        target = len(self.instructions)
        for position in jumps:
            opcode, a, _ = self.instructions[position]
            self.instructions[position] = (opcode, a, target)

    def declare(self, name: str | None) -> int:
        """A new variable's cell; None for one that the program cannot name."""
        cell = self.variable_count
        self.variable_count += 1
        if name is not None:
            self.variables[name] = cell
        return cell

    def find(self, name: str) -> int | None:
        """The cell that ``name`` means here; a variable of a function around this one is captured."""
        if name in self.variables:
            return self.variables[name]
        if name not in self.captured:
            source = self.parent.find(name) if self.parent else None
            if source is None:
                return None
            self.capture_sources.append(source)
            self.captured[name] = -len(self.capture_sources)
        return self.captured[name]

    def finish(self) -> FunctionCode:
        return FunctionCode(
            self.name,
            tuple(self.instructions),
            tuple(self.offsets),
            tuple(reversed(self.capture_sources)),
            self.parameters,
            self.has_rest,
            self.variable_count,
        )
