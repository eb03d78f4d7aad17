"""Assembles the instructions of functions while the compiler walks the tree, and resolves names to variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dalsegno.lang.runtime.code import Constant, FunctionCode, Instruction, Op, ProtectedRange, Scope

HIDDEN = " "
"""The first character of the compiler's hidden names: programs can neither write nor see them."""

_WHEN_BOXED = {Op.LOAD: Op.LOAD_BOXED, Op.STORE: Op.STORE_BOXED}


class ConstantPool:
    """Constants of one unit, each stored once."""

    def __init__(self) -> None:
        self.values: list[Constant] = []
        self.positions: dict[tuple[type, str | Constant], int] = {}

    def add(self, value: Constant) -> int:
        # Minus zero equals zero, but is a different constant.
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
    """One function being compiled; ``parent`` is the enclosing function."""

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
        self.protected_ranges: list[ProtectedRange] = []
        self.parameters = 0
        self.has_rest = False

    @property
    def position(self) -> int:
        """The position of the next instruction."""
        return len(self.instructions)

    def emit(self, op: Op, a: int = 0, b: int = 0, *, at: int) -> int:
        """Append an instruction; return its position, for `land`."""
        self.instructions.append((int(op), a, b))
        self.offsets.append(at)
        return len(self.instructions) - 1

    def land(self, *jumps: int) -> None:
        """Set the target of these jumps to the next instruction."""
        target = len(self.instructions)
        for position in jumps:
            opcode, a, _ = self.instructions[position]
            self.instructions[position] = (opcode, a, target)

    # variables

    def declare(self, name: str | None, constant: bool = False) -> int:
        """Return a new variable's slot, visible in the innermost scope.

        The name is None if the program cannot name the variable.
        """
        slot = self.variable_count
        self.variable_count += 1
        if name is not None:
            self.visible[-1][name] = Variable(slot, constant)
        return slot

    def open_scope(self, names: Iterable[tuple[str | None, bool]]) -> int:
        """Declare variables (name, whether constant) that live until `close_scope`; return a mark for that."""
        self.visible.append({})
        first = self.variable_count
        shown = []
        for name, constant in names:
            self.declare(name, constant)
            shown.append(None if name is None or name.startswith(HIDDEN) else name)
        self.scopes.append(Scope(self.position, -1, first, tuple(shown)))
        return len(self.scopes) - 1

    def prepare_scope(self, mark: int, *, at: int) -> None:
        """Emit the creation of the scope's variables; nothing for a scope without variables."""
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
        """Return the variable that ``name`` refers to here; a variable of an enclosing function is captured."""
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
            (*self._unscoped(), *self.scopes),
            tuple(self.protected_ranges),
            tuple(self.captured),
        )

    def _unscoped(self) -> Iterator[Scope]:
        """Yield scopes of parameters and other variables outside of scopes: they live as long as the function runs."""
        names = {variable.slot: name for name, variable in self.visible[0].items()} | self.parameter_names
        scoped = {
            slot for scope in self.scopes for slot in range(scope.first, scope.first + len(scope.names))
        }
        for slot in range(self.variable_count):
            if slot not in scoped:
                yield Scope(-1, len(self.instructions) + 1, slot, (names.get(slot),))

    def _boxing(self, instruction: Instruction) -> Instruction:
        """Replace access to captured variables, which are known only now."""
        opcode, a, b = instruction
        if opcode in _WHEN_BOXED and a in self.boxed:
            return (int(_WHEN_BOXED[Op(opcode)]), a, b)
        return instruction
