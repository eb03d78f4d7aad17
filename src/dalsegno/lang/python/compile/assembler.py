"""The assembler of one function's instructions.

It keeps labels, stack depth, lines, fragments and the variables that each instruction reads and writes.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from dalsegno.lang.python.code import Handler, Instruction, Op
from dalsegno.lang.python.compile.fragments import FragmentWriter, as_native
from dalsegno.lang.python.compile.scopes import reads_and_writes

_DEPTH_CHANGE: dict[Op, int] = {
    Op.LOAD: 1,
    Op.STORE: -1,
    Op.NOTHING: 1,
    Op.POP: -1,
    Op.TUCK: 1,
    Op.JUMP_IF_FALSE: -1,
    Op.JUMP_IF_TRUE: -1,
    Op.FALSE_OR_POP: -1,
    Op.TRUE_OR_POP: -1,
    Op.NEXT: 1,
    Op.APPEND: -1,
    Op.ADD: -1,
    Op.ENTRY: -2,
    Op.NEW_LIST: 1,
    Op.NEW_SET: 1,
    Op.NEW_DICT: 1,
    Op.RETURN: -1,
    Op.CATCH: -1,
    Op.CAUGHT: 1,
    Op.MATCHES: -1,
    Op.RAISE: -1,
    Op.RESUME_AT: 1,
    Op.END_FINALLY: -1,
    Op.ENTER: 1,
    Op.LEAVE: -1,
    Op.ESCAPE: -2,
}
"""The change of stack depth on fall-through. The compiler sets the depth itself at jump targets."""


class Label:
    """A position in the code, known once it is reached."""

    __slots__ = ("position",)

    def __init__(self) -> None:
        self.position = -1


@dataclass(slots=True)
class Emitted:
    """An instruction whose target may still be a label."""

    op: Op
    a: int | Label
    b: int
    line: int
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()

    def resolved(self) -> Instruction:
        return (int(self.op), self.a.position if isinstance(self.a, Label) else self.a, self.b)


@dataclass(slots=True)
class Region:
    """Instructions protected by a handler that begins at ``target``."""

    start: int
    stop: int
    target: Label
    depth: int
    handled: int

    def resolved(self) -> Handler:
        return Handler(self.start, self.stop, self.target.position, self.depth, self.handled)


@dataclass(slots=True)
class Guard:
    """A handler that protects the instructions from ``start`` until it is closed."""

    start: int
    target: Label
    depth: int
    handled: int


@dataclass(slots=True)
class Assembly:
    """The instructions of one function while they are being assembled."""

    variables: Sequence[str]
    writer: FragmentWriter
    line: int
    emitted: list[Emitted] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    depth: int = 0
    handled: int = 0
    """The number of exceptions being handled at this position."""

    def emit(self, op: Op, a: int | Label = 0, b: int = 0) -> Emitted:
        instruction = Emitted(op, a, b, self.line)
        self.emitted.append(instruction)
        if op is Op.RUN or op is Op.EXECUTE:
            self.depth -= b - (op is Op.RUN)
        elif op is Op.CUT and isinstance(a, int):
            self.depth = a + 1
        elif op is Op.COPY and isinstance(a, int):
            self.depth += a
        else:
            self.depth += _DEPTH_CHANGE.get(op, 0)
        return instruction

    def place(self, label: Label, depth: int | None = None) -> None:
        label.position = len(self.emitted)
        if depth is not None:
            self.depth = depth

    @property
    def here(self) -> int:
        return len(self.emitted)

    def guard(self, target: Label, depth: int | None = None) -> Guard:
        return Guard(self.here, target, self.depth if depth is None else depth, self.handled)

    def close(self, guard: Guard) -> None:
        """Close a guard. Inner guards are closed before outer ones, so they are found first."""
        if guard.start < self.here:
            self.regions.append(Region(guard.start, self.here, guard.target, guard.depth, guard.handled))

    def evaluate(self, node: ast.expr, operands: int = 0) -> None:
        """Emit a fragment that returns an expression's value."""
        body: list[ast.stmt] = [ast.copy_location(ast.Return(node), node)]
        self._fragment(Op.RUN, self.writer.add(body, operands, self.line), body, operands)

    def execute(self, body: list[ast.stmt], operands: int = 0, op: Op = Op.EXECUTE) -> None:
        """Emit a fragment of statements. With `Op.RUN` it returns None, or its return value as a one-element tuple."""
        body = [as_native(statement) for statement in body]
        self._fragment(op, self.writer.add(body, operands, self.line), body, operands)

    def test(self, body: list[ast.stmt], operands: int) -> None:
        """Emit a fragment of generated statements; its result is on the stack."""
        self._fragment(Op.RUN, self.writer.add(body, operands, self.line), body, operands)

    def _fragment(self, op: Op, number: int, body: list[ast.stmt], operands: int) -> None:
        reads, writes = reads_and_writes(body)
        known = frozenset(self.variables)
        instruction = self.emit(op, number, operands)
        instruction.reads, instruction.writes = known & reads, known & writes

    def load(self, name: str) -> None:
        self.emit(Op.LOAD, self.index(name)).reads = frozenset((name,))

    def store(self, name: str) -> None:
        self.emit(Op.STORE, self.index(name)).writes = frozenset((name,))

    def clear(self, name: str, op: Op = Op.CLEAR) -> None:
        self.emit(op, self.index(name)).writes = frozenset((name,))

    def index(self, name: str) -> int:
        return self.variables.index(name)
