"""Moves a stored workflow to another version of its function, if every place and every live variable has a counterpart.

It works on the stored form: frames get new positions and variables, nested functions the code of the new version. The
result is loaded with the new version: what it names must exist there. What has no counterpart is refused with the lines
of both versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType
from typing import Any

import msgspec

from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.python.code import FunctionCode, Op
from dalsegno.lang.python.compile.expressions import SEPARATOR
from dalsegno.lang.python.compile.operand_stack import WHERE, Held, OperandStack
from dalsegno.lang.python.compile.outline import NotAligned, outline
from dalsegno.lang.python.errors import NotStorable, UnsupportedPython
from dalsegno.lang.python.program import Migration, PythonProgram
from dalsegno.lang.python.runtime.machine import PythonMachine
from dalsegno.lang.python.snapshot.format import (
    CONTENT,
    DEAD,
    Row,
    StoredFrame,
    StoredMachine,
    Tag,
    Written,
    sealed,
)
from dalsegno.lang.python.snapshot.read import NO_BLOBS, decode, with_blobs
from dalsegno.lang.python.snapshot.write import dotted_path
from dalsegno.lang.runtime.alignment import Alignment, Doubt, Path, Site, function_of, function_path, paths
from dalsegno.lang.runtime.movement import (
    ADVICE_MIGRATION,
    FrameMove,
    Immovable,
    Movement,
    Reason,
    check_blocks,
    doubtful,
)

_RAISES = -1
"""Where a ``finally`` block continues that an exception has entered."""
_WAITING = {Op.AWAIT: "await", Op.RETURN: "return"}


class WorkflowVersion:
    """One version of the workflow: its sites, and what its frames hold."""

    def __init__(self, program: PythonProgram) -> None:
        self.program = program
        self.functions = program.functions
        try:
            self.root: Site = outline(program.functions, program.source)
        except (NotAligned, UnsupportedPython) as problem:
            message = f"the source of the workflow '{program.name}' and its instructions do not agree"
            raise SnapshotError(message) from problem
        self.stacks = [OperandStack(code) for code in program.functions]

    def site(self, number: int, position: int) -> Path | None:
        """Return the place at which a function waits."""
        kind = _WAITING.get(Op(self.functions[number].instructions[position][0]))
        for path in paths(self.root):
            if path[-1].kind == kind and path[-1].place == position and function_of(path) == number:
                return path
        return None


class WorkflowMover:
    """Moves machines from one version of a workflow to another, which are compared once."""

    def __init__(self, old: WorkflowVersion, new: WorkflowVersion) -> None:
        self.old = old
        self.new = new
        self.alignment = Alignment(old.root, new.root)

    def move(
        self, data: bytes, blobs: Mapping[str, bytes] = NO_BLOBS, migration: Migration | None = None
    ) -> Movement:
        """Move the snapshot of a suspended workflow; nothing is stored by this. The migration is user code."""
        stored = decode(data)
        old = self.old.program
        if stored.program != old.hash:
            raise SnapshotError(f"the snapshot belongs to another version of the workflow '{old.name}'")
        if stored.status != "suspended":
            message = f"only a workflow that waits can be moved; this one is {stored.status}"
            return Movement(reasons=(Reason(message, stored.line),))
        return _Machine(stored, with_blobs(stored.rows, blobs), self, migration).movement()


class _Machine:
    """The machine being moved."""

    def __init__(
        self, stored: StoredMachine, rows: list[Row], mover: WorkflowMover, migration: Migration | None
    ) -> None:
        self.stored = stored
        self._migration = migration
        self._lacking: dict[str, Reason] = {}
        """Variables that the function that waits lacks: the migration must give them."""
        self.rows: list[Row] = [list(row) for row in rows]
        self.old = mover.old
        self.new = mover.new
        self.alignment = mover.alignment
        self.moves: list[FrameMove] = []
        self.reasons: list[Reason] = []

    def movement(self) -> Movement:
        last = len(self.stored.frames) - 1
        frames = [self._frame(frame, at == last) for at, frame in enumerate(self.stored.frames)]
        if not self.reasons:
            try:
                self._functions(frames)
            except Immovable as problem:
                self.reasons.append(problem.reason)
        if self.reasons:
            return Movement(tuple(self.moves), tuple(dict.fromkeys(self.reasons)))
        line = self.moves[-1].new_line or 0
        moved = msgspec.structs.replace(
            self.stored, program=self.new.program.hash, line=line, frames=frames, rows=self.rows
        )
        try:
            machine = PythonMachine.loads(self.new.program, sealed(msgspec.json.encode(moved)))
            self._migrate(machine)
            return Movement(tuple(self.moves), (), machine.dumps())
        except Immovable as problem:
            return Movement(tuple(self.moves), (problem.reason,))
        except (SnapshotError, NotStorable) as problem:
            return Movement(tuple(self.moves), (Reason(str(problem), self.moves[-1].old_line, line),))

    def _migrate(self, machine: PythonMachine) -> None:
        """Let the migration give variables to the function that waits; the old ones are below its operands."""
        if self._migration is None:
            return
        frame, move = machine.frames[-1], self.moves[-1]
        try:
            found = dict(self._migration(frame.stack.pop(0)))
        except Exception as error:
            message = f"its migration failed: {type(error).__name__}: {error}"
            raise Immovable(Reason(message, move.old_line, move.new_line)) from error
        names = frame.code.variables[: frame.code.own + len(frame.code.captured)]
        for name, value in found.items():
            if name not in names:
                message = f"its migration gives the variable '{name}', which the new version does not have"
                raise Immovable(Reason(message, move.old_line, move.new_line))
            frame.cells[names.index(name)].cell_contents = value
        for name, reason in self._lacking.items():
            if name not in found:
                raise Immovable(reason)

    def _old_variables(self, frame: StoredFrame) -> Written:
        """Return a dict of the variables of a function, by name."""
        row: Row = [Tag.DICT]
        for name, written in zip(self.old.functions[frame.number].variables, frame.variables, strict=False):
            if written == DEAD or SEPARATOR in name:
                continue
            cell = written if written[0] == CONTENT else self.rows[written[0]]
            if len(cell) > 1 and cell[0] in (CONTENT, Tag.CELL):
                row.extend((name, cell[1]))
        self.rows.append(row)
        return [len(self.rows) - 1]

    # -- frames -----------------------------------------------------------------------------------------------

    def _frame(self, frame: StoredFrame, is_top: bool) -> StoredFrame:
        code = self.old.functions[frame.number]
        at = frame.position if is_top else frame.position - 1
        try:
            moved, line = self._moved(frame, at, is_top)
        except Immovable as problem:
            self.reasons.append(problem.reason)
            self.moves.append(FrameMove(code.name, code.lines[at], problem.reason.new_line))
            return frame
        self.moves.append(FrameMove(code.name, code.lines[at], line))
        return moved

    def _moved(self, frame: StoredFrame, at: int, is_top: bool) -> tuple[StoredFrame, int]:
        line = self.old.functions[frame.number].lines[at]
        path = self.old.site(frame.number, at)
        if path is None:
            message = "it waits at a place that has no counterpart in another version"
            raise Immovable(Reason(message, line, None, "write 'return await …'"))
        found = self.alignment.counterpart(path)
        if isinstance(found, Doubt):
            raise doubtful(found)
        check_blocks(path, found)
        place, target = found[-1].place, function_of(found)
        stack = self._stack(frame, at, target, place, (line, found[-1].line))
        values = _Variables(self, frame, at, target, (line, found[-1].line))
        variables = values.moved(place)
        if is_top and self._migration is not None:
            self._lacking = values.lacking
            stack.insert(0, self._old_variables(frame))
        elif values.lacking:
            raise Immovable(next(iter(values.lacking.values())))
        position = place if is_top else place + 1
        return StoredFrame(target, position, stack, variables, frame.handled), found[-1].line

    def _stack(
        self, frame: StoredFrame, at: int, target: int, place: int, lines: tuple[int, int]
    ) -> list[Written]:
        """Return the operands: the same, except that a ``finally`` block continues at a position of the new code."""
        ours = self.old.stacks[frame.number].before_await(at)
        theirs = self.new.stacks[target].before_await(place)
        if ours is None or theirs is None or _described(ours) != _described(theirs):
            message = "the expression around it has computed other values than the new version would have"
            raise Immovable(Reason(message, *lines, "give the values names, in statements before the await"))
        if ours.handled != len(frame.handled):
            raise Immovable(Reason("it handles other exceptions than the new version would", *lines))
        stack = list(frame.stack)
        for index, (before, after) in enumerate(zip(ours.stack, theirs.stack, strict=True)):
            if before[0] == WHERE:
                stack[index] = self._where(stack[index], before[1], after[1], frame.number, target, lines)
        return stack

    def _where(
        self,
        where: Any,
        old: frozenset[int],
        new: frozenset[int],
        number: int,
        target: int,
        lines: tuple[int, int],
    ) -> int:
        if where == _RAISES:
            return _RAISES
        ours, theirs = sorted(old - {_RAISES}), sorted(new - {_RAISES})
        before = [_leaving(self.old.functions[number], at) for at in ours]
        if before != [_leaving(self.new.functions[target], at) for at in theirs] or where not in ours:
            message = "the 'finally' block around it continues at other places than before"
            raise Immovable(Reason(message, *lines, "leave the exits of its 'try' as they were"))
        return theirs[ours.index(where)]

    # -- functions in variables -------------------------------------------------------------------------------

    def _functions(self, frames: list[StoredFrame]) -> None:
        """Give nested functions the code of the new version; drop what can no longer be reached."""
        reached = self._reached(frames)
        for index in sorted(reached):
            row = self.rows[index]
            if row[0] == Tag.FUNCTION:
                self.rows[index] = self._plain_function(row)
            elif row[0] == Tag.NESTED:
                self.rows[index] = self._nested_function(row)
        for index in range(len(self.rows)):
            if index not in reached:
                self.rows[index] = [Tag.LIST]

    def _reached(self, frames: list[StoredFrame]) -> set[int]:
        waiting: list[Any] = [*self.stored.timeouts]
        for frame in frames:
            waiting.extend((*frame.stack, *frame.variables, *frame.handled))
        found: set[int] = set()
        while waiting:
            value = waiting.pop()
            if not isinstance(value, list):
                continue
            if len(value) == 2 and value[0] == CONTENT:
                waiting.append(value[1])
            elif len(value) in (1, 3) and value[-1] not in found:
                found.add(value[-1])
                waiting.extend(self.rows[value[-1]][1:])
        return found

    def _function_path(self, number: int) -> tuple[Path, Path]:
        path = function_path(self.old.root, number)
        found = None if path is None else self.alignment.counterpart(path)
        code = self.old.functions[number]
        if path is None or not isinstance(found, tuple):
            message = f"the function '{code.name}' is not at this place of the new version"
            raise Immovable(Reason(message, code.line, None, "keep the function"))
        return path, found

    def _plain_function(self, row: Row) -> Row:
        """Return a function or lambda that the workflow has made, with the code of the new version."""
        _, number, path, count, *parts = row
        _, found = self._function_path(number)
        target = found[-1].number
        before = self.old.program.natives[number].nested[tuple(map(int, path.split(".")))]
        place, after = self._same_code(before, target)
        given = dict(zip(before.co_freevars, parts[:count], strict=True))
        cells = [self._cell(given, name, before) for name in after.co_freevars]
        return [Tag.FUNCTION, target, dotted_path(place), len(cells), *cells, *parts[count:]]

    def _same_code(self, before: CodeType, target: int) -> tuple[tuple[int, ...], CodeType]:
        """Return the code of the new version: equal code, else the only one of its name, with the same parameters."""
        nested = self.new.program.natives[target].nested
        named = [(path, code) for path, code in nested.items() if code.co_qualname == before.co_qualname]
        equal = [(path, code) for path, code in named if _content(code) == _content(before)]
        found = equal or named
        is_sure = bool(equal) or (len(named) == 1 and not before.co_name.startswith("<"))
        if not is_sure or _parameters(found[0][1]) != _parameters(before):
            message = f"a variable holds the function '{before.co_name}', which has changed"
            advice = "give functions that outlive an await a name of their own, and keep their parameters"
            raise Immovable(Reason(message, before.co_firstlineno, None, advice))
        return found[0]

    def _cell(self, given: dict[str, Written], name: str, code: CodeType) -> Written:
        if name in given:
            return given[name]
        if name not in self.new.program.outside:
            message = f"a variable holds the function '{code.co_name}', which now uses the variable '{name}'"
            raise Immovable(Reason(message, code.co_firstlineno, None, "pass it as an argument"))
        self.rows.append([Tag.OUTSIDE, name])
        return [len(self.rows) - 1]

    def _nested_function(self, row: Row) -> Row:
        _, number, binder, *cells = row
        _, found = self._function_path(number)
        before, after = self.old.functions[number], self.new.functions[found[-1].number]
        given = dict(zip(_captured(before), cells, strict=True))
        missing = [name for name in _captured(after) if name not in given]
        if missing:
            message = (
                f"a variable holds the function '{before.name}', which now uses the variable '{missing[0]}'"
            )
            raise Immovable(Reason(message, before.line, after.line, "pass it as an argument"))
        return [Tag.NESTED, found[-1].number, binder, *[given[name] for name in _captured(after)]]


def _captured(code: FunctionCode) -> tuple[str, ...]:
    return code.variables[code.own : code.own + len(code.captured)]


def _described(held: Held) -> tuple[Any, int]:
    return tuple(operand[:1] if operand[0] == WHERE else operand for operand in held.stack), held.handled


def _leaving(code: FunctionCode, at: int) -> list[int]:
    """Return the operations with which a ``finally`` block continues, up to the next jump."""
    found: list[int] = []
    while 0 <= at < len(code.instructions):
        op = code.instructions[at][0]
        found.append(op)
        if op in (Op.RETURN, Op.JUMP):
            break
        if op not in (Op.CUT, Op.POP, Op.RESUME_AT, Op.DONE, Op.LEAVE, Op.CLEAR):
            found.pop()
            break
        at += 1
    return found


def _content(code: CodeType) -> tuple[Any, ...]:
    """Return what code does, without its place in the file."""
    constants = tuple(
        _content(item) if isinstance(item, CodeType) else (type(item).__name__, repr(item))
        for item in code.co_consts
    )
    return (code.co_code, constants, code.co_names, code.co_freevars, code.co_varnames, *_parameters(code))


def _parameters(code: CodeType) -> tuple[Any, ...]:
    count = code.co_argcount + code.co_kwonlyargcount
    return (
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_varnames[:count],
        code.co_flags,
    )


class _Variables:
    """The variables of one frame, given to the cells of the new version."""

    def __init__(
        self, mover: _Machine, frame: StoredFrame, at: int, target: int, lines: tuple[int, int]
    ) -> None:
        self._before = mover.old.functions[frame.number]
        self._code = mover.new.functions[target]
        self._lines = lines
        self.lacking: dict[str, Reason] = {}
        """The variables that the new version reads and that have no value."""
        self._stacks = mover.old.stacks[frame.number], mover.new.stacks[target]
        self._at = at
        self._alive_before = mover.old.program.masks[frame.number][0][at]
        self._masks = mover.new.program.masks[target][0]
        count = self._before.own + len(self._before.captured)
        values = [*frame.variables, *[DEAD] * (count - len(frame.variables))]
        self._values = dict(zip(self._before.variables[:count], values, strict=True))
        ours, theirs = function_path(mover.old.root, frame.number), function_path(mover.new.root, target)
        self._is_same = ours is not None and theirs is not None and ours[-1].detail == theirs[-1].detail

    def moved(self, place: int) -> list[Written]:
        alive = self._masks[place]
        names = self._code.variables[: self._code.own + len(self._code.captured)]
        found = [
            self._value(name, names, place if alive >> index & 1 else None)
            for index, name in enumerate(names)
        ]
        while found and found[-1] == DEAD:
            found.pop()
        return found

    def _value(self, name: str, names: tuple[str, ...], place: int | None) -> Written:
        """Return the value of a variable. ``place`` is given if the new version may read it from there on."""
        source = self._source(name, names)
        value = self._values.get(source, DEAD)
        if value == DEAD and place is not None and not self._is_unbound(source, name, place):
            self.lacking[name] = Reason(self._complaint(name), *self._lines, ADVICE_MIGRATION)
        return value

    def _is_unbound(self, source: str, name: str, place: int) -> bool:
        """Return whether the variable has no value here in either version: the assignments before are the same."""
        if (
            source not in self._before.variables
            or not self._alive_before >> self._before.variables.index(source) & 1
        ):
            return False
        old, new = self._stacks
        return self._is_same or old.assignments(self._at, source) == new.assignments(place, name)

    def _source(self, name: str, names: tuple[str, ...]) -> str:
        """Return the old name: the variables of comprehensions are numbered, and may have got other numbers."""
        base, separator, _ = name.partition(SEPARATOR)
        if not separator:
            return name
        ours = [each for each in self._values if each.partition(SEPARATOR)[:2] == (base, separator)]
        theirs = [each for each in names if each.partition(SEPARATOR)[:2] == (base, separator)]
        if len(ours) == len(theirs):
            return ours[theirs.index(name)]
        kept = [each for each in ours if self._values[each] != DEAD]
        return kept[0] if len(kept) == 1 else ""

    def _complaint(self, name: str) -> str:
        shown = f"the new version reads the variable '{name.partition(SEPARATOR)[0]}'"
        if name not in self._before.variables:
            return f"{shown}, which the old one does not have"
        index = self._before.variables.index(name)
        if self._alive_before >> index & 1:
            return f"{shown}, which has no value in the old one"
        return f"{shown}, which the old one no longer needed and did not store"
