"""Collects the instructions of functions while the compiler walks the tree, and knows which variable a name means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dalsegno.lang.code import Constant, FunctionCode, Instruction, Scope, Shelter
from dalsegno.lang.opcodes import Op

HIDDEN = " "
"""Names that begin with it are the compiler's own: no program can write or see them."""

_WHEN_BOXED = {Op.LOAD: Op.LOAD_BOXED, Op.STORE: Op.STORE_BOXED}


class ConstantPool:
    """Constants of one unit, each stored once."""

    def __init__(self) -> None:
        self.values: list[Constant] = []
        self.positions: dict[tuple[type, str | Constant], int] = {}

    def add(self, value: Constant) -> int:
        # Minus zero equals zero, and is another constant all the same.
        key = (type(value), repr(value) if isinstance(value, float) else value)
        position = self.positions.get(key)
        if position is None:
            position = self.positions[key] = len(self.values)
            self.values.append(value)
        return position


class Variable(NamedTuple):
    """``slot`` counts -1, -2 … for captured cells."""

    slot: int
    constant: bool = False


class FunctionAssembler:
    """One function being compiled; ``parent`` is the function around it."""

    def __init__(self, name: str, number: int = 0, parent: FunctionAssembler | None = None) -> None:
        self.name = name
        self.number = number
        self.parent = parent
        self.instructions: list[Instruction] = []
        self.offsets: list[int] = []
        self.visible: list[dict[str, Variable]] = [{}]
        self.variable_count = 0
        self.parameter_names: dict[int, str] = {}
        self.captured: dict[str, Variable] = {}
        self.capture_sources: list[int] = []
        self.boxed: set[int] = set()
        self.prepared: set[int] = set()
        self.scopes: list[Scope] = []
        self.shelters: list[Shelter] = []
        self.parameters = 0
        self.has_rest = False

    @property
    def position(self) -> int:
        """Of the next instruction."""
        return len(self.instructions)

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

    # variables

    def declare(self, name: str | None, constant: bool = False) -> int:
        """A new variable's slot, visible in the innermost scope; None for one that the program cannot name."""
        slot = self.variable_count
        self.variable_count += 1
        if name is not None:
            self.visible[-1][name] = Variable(slot, constant)
        return slot

    def open_scope(self, names: Iterable[tuple[str | None, bool]]) -> int:
        """Declare variables (name, whether constant) that live until `close_scope`; returns a mark for that."""
        self.visible.append({})
        first = self.variable_count
        shown = []
        for name, constant in names:
            self.declare(name, constant)
            shown.append(None if name is None or name.startswith(HIDDEN) else name)
        self.scopes.append(Scope(self.position, -1, first, tuple(shown)))
        return len(self.scopes) - 1

    def prepare_scope(self, mark: int, *, at: int) -> None:
        """Emit what makes the scope's variables anew; nothing for a scope without variables."""
        scope = self.scopes[mark]
        if scope.names:
            stop = scope.first + len(scope.names)
            self.prepared.update(range(scope.first, stop))
            self.emit(Op.SCOPE, scope.first, stop, at=at)

    def close_scope(self, mark: int) -> None:
        scope = self.scopes[mark]
        self.scopes[mark] = Scope(scope.start, self.position, scope.first, scope.names)
        self.visible.pop()

    def find(self, name: str) -> Variable | None:
        """The variable that ``name`` means here; one of a function around this one is captured."""
        for scope in reversed(self.visible):
            if name in scope:
                return scope[name]
        if name not in self.captured:
            outer = self.parent.find(name) if self.parent else None
            if self.parent is None or outer is None:
                return None
            if outer.slot >= 0:
                self.parent.boxed.add(outer.slot)
            self.capture_sources.append(outer.slot)
            self.captured[name] = Variable(-len(self.capture_sources), outer.constant)
        return self.captured[name]

    def load(self, slot: int, *, at: int) -> None:
        if slot < 0:
            self.emit(Op.LOAD_CAPTURED, -slot - 1, at=at)
        else:
            self.emit(Op.LOAD, slot, at=at)

    def store(self, slot: int, *, at: int) -> None:
        if slot < 0:
            self.emit(Op.STORE_CAPTURED, -slot - 1, at=at)
        else:
            self.emit(Op.STORE, slot, at=at)

    # the finished function

    def finish(self) -> FunctionCode:
        return FunctionCode(
            self.number,
            self.name,
            tuple([self._boxing(instruction) for instruction in self.instructions]),
            tuple(self.offsets),
            tuple(self.capture_sources),
            self.parameters,
            self.has_rest,
            self.variable_count,
            tuple(sorted(self.boxed)),
            tuple(sorted(self.boxed - self.prepared)),
            (*self._lifelong(), *self.scopes),
            tuple(self.shelters),
            tuple(self.captured),
        )

    def _lifelong(self) -> Iterator[Scope]:
        """Parameters and their like: what belongs to no scope lives as long as the function runs."""
        names = {variable.slot: name for name, variable in self.visible[0].items()} | self.parameter_names
        scoped = {
            slot for scope in self.scopes for slot in range(scope.first, scope.first + len(scope.names))
        }
        for slot in range(self.variable_count):
            if slot not in scoped:
                yield Scope(-1, len(self.instructions) + 1, slot, (names.get(slot),))

    def _boxing(self, instruction: Instruction) -> Instruction:
        """Only now is it known which variables were captured."""
        opcode, a, b = instruction
        if opcode in _WHEN_BOXED and a in self.boxed:
            return (int(_WHEN_BOXED[Op(opcode)]), a, b)
        return instruction
