"""Moves a stored script to another version of its program, if every place and every live variable has a counterpart.

It works on the packed state: frames get new positions and new slots, function values the functions of the new version.
What has no counterpart is refused with the lines of both versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw

from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.flow.compile.analysis import Analysis, Variable, globals_read
from dalsegno.lang.flow.program import FlowProgram
from dalsegno.lang.flow.runtime.machine import Machine
from dalsegno.lang.flow.snapshot.format import STATUSES, State, read, write
from dalsegno.lang.flow.snapshot.migrating import MigrationFailed, migrated, variables_of
from dalsegno.lang.flow.snapshot.write import TAG, Entry, Mark, Packed
from dalsegno.lang.flow.syntax.outline import Outline
from dalsegno.lang.flow.syntax.parser import parse_program
from dalsegno.lang.runtime.alignment import Alignment, Doubt, Path, Site, function_of, function_path, paths
from dalsegno.lang.runtime.code import FunctionCode, Op
from dalsegno.lang.runtime.movement import (
    ADVICE_MIGRATION,
    FrameMove,
    Immovable,
    Movement,
    Reason,
    check_blocks,
    doubtful,
)

_UNSET: Packed = {TAG: [Mark.UNSET]}
_WAITING = {Op.AWAIT: ("await", "return"), Op.CALL: ("call",), Op.METHOD: ("call",), Op.MUTATE: ("call",)}


class ScriptVersion:
    """One version of the program: its sites, and what its frames hold."""

    def __init__(self, program: FlowProgram) -> None:
        self.program = program
        self.functions = program.unit.functions
        tree, _ = parse_program(program.source, program.name)
        made = {
            function.offsets[at]: a
            for function in self.functions
            for at, (op, a, _) in enumerate(function.instructions)
            if op == Op.FUNCTION
        }
        names = {number: function.name for number, function in enumerate(self.functions)}
        self.root: Site = Outline(program.line, made, names).program(tree)
        self.analyses = [Analysis(program.unit, function) for function in self.functions]

    def site(self, number: int, position: int) -> Path | None:
        """Return the place at which a function waits."""
        code = self.functions[number]
        kinds = _WAITING.get(Op(code.instructions[position][0]), ())
        offset = code.offsets[position]
        for path in paths(self.root):
            if path[-1].place == offset and path[-1].kind in kinds and function_of(path) == number:
                return path
        return None

    def position(self, path: Path) -> int | None:
        """Return the instruction of a place, if there is exactly one."""
        code = self.functions[function_of(path)]
        leaf = path[-1]
        found = [
            at
            for at, (op, _, _) in enumerate(code.instructions)
            if code.offsets[at] == leaf.place and leaf.kind in _WAITING.get(Op(op), ())
        ]
        return found[0] if len(found) == 1 else None

    def line(self, number: int, position: int) -> int:
        return self.program.line(self.functions[number].offsets[position])


class ScriptMover:
    """Moves machines from one version of a script to another, which are compared once."""

    def __init__(self, old: ScriptVersion, new: ScriptVersion) -> None:
        self.old = old
        self.new = new
        self.alignment = Alignment(old.root, new.root)

    def move(self, data: bytes, from_version: int = 0) -> Movement:
        """Move the snapshot of a suspended script; nothing is stored by this.

        If the new version has a migration, it gets the old variables and the number of the version they are from.
        """
        state = read(self.old.program.fingerprint, data)
        if STATUSES[state.status] != "suspended":
            message = f"only a script that waits can be moved; this one is {STATUSES[state.status]}"
            return Movement(reasons=(Reason(message, 0),))
        return _Machine(state, self, data, from_version).movement()


class _Machine:
    """The machine being moved."""

    def __init__(self, state: State, mover: ScriptMover, data: bytes, from_version: int) -> None:
        self.state = state
        self._data = data
        self._from_version = from_version
        self.old = mover.old
        self.new = mover.new
        self.alignment = mover.alignment
        self.heap: list[list[Packed]] = [list(entry) for entry in state.heap]
        self.moves: list[FrameMove] = []
        self.reasons: list[Reason] = []
        self.running: dict[int, int] = {}
        """The functions of the frames: their numbers in both versions."""
        self.read: set[Any] = set()
        """Workflow-wide variables that the frames may read before they write them."""

    def movement(self) -> Movement:
        frames = [
            self._frame(packed, at == len(self.state.frames) - 1)
            for at, packed in enumerate(self.state.frames)
        ]
        if not self.reasons:
            self._attempt(self._check_globals)
            self._attempt(lambda: self._functions(frames))
        if self.reasons:
            return Movement(tuple(self.moves), tuple(dict.fromkeys(self.reasons)))
        state = self.state
        moved = State(
            state.status, state.made, state.execution, frames, state.globals, self.heap, state.values, state.effects,
            state.logs, tracebacks=state.tracebacks,
        )  # fmt: skip
        try:
            machine = Machine.loads(self.new.program, write(self.new.program.fingerprint, moved))
        except SnapshotError as problem:
            return Movement(tuple(self.moves), (Reason(str(problem), self.moves[-1].old_line),))
        return Movement(tuple(self.moves), (), machine.dumps())

    def _attempt(self, check: Any) -> None:
        try:
            check()
        except Immovable as problem:
            self.reasons.append(problem.reason)

    # -- frames -----------------------------------------------------------------------------------------------

    def _frame(self, packed: list[Packed], is_top: bool) -> list[Packed]:
        if len(packed) == 2:
            if packed[0] == "sort":
                self.reasons.append(Reason("a sort() is under way", 0))
            return packed
        number, position = packed[0], packed[1]
        at = position if is_top else position - 1
        name, line = self.old.functions[number].name, self.old.line(number, at)
        try:
            moved, new_line = self._moved(packed, at, is_top)
        except Immovable as problem:
            self.reasons.append(problem.reason)
            self.moves.append(FrameMove(name, line, problem.reason.new_line))
            return packed
        self.moves.append(FrameMove(name, line, new_line))
        return moved

    def _moved(self, packed: list[Packed], at: int, is_top: bool) -> tuple[list[Packed], int]:
        number, arguments, stack = packed[0], packed[2], packed[3]
        line = self.old.line(number, at)
        path = self.old.site(number, at)
        if path is None:
            raise Immovable(Reason("it waits at a place that has no counterpart in another version", line))
        found = self.alignment.counterpart(path)
        if isinstance(found, Doubt):
            raise doubtful(found)
        place, target = self.new.position(found), function_of(found)
        self.running[number] = target
        if place is None:
            raise Immovable(Reason("the place is compiled more than once", line, found[-1].line))
        check_blocks(path, found)
        self._check_operands(number, at, target, place, line, found[-1].line)
        analysis = self.new.analyses[target]
        live = analysis.live(place) if is_top else analysis.live_after_call(place)
        self.read |= {found[1] for found in live if isinstance(found, tuple) and found[0] == "global"}
        given = self._given(line, found[-1].line) if is_top else {}
        names = _Variables(self, packed, self.new.functions[target], live, path, found, given)
        resumed = place if is_top else place + 1
        slots = names.slots(self.new.program.live_slots(self.new.functions[target], resumed), resumed)
        return [target, resumed, arguments, stack, slots, names.captured()], found[-1].line

    def _given(self, line: int, new_line: int) -> dict[str, Packed]:
        """Return the variables that the migration of the new version gives."""
        new = self.new.program
        try:
            found = migrated(new, variables_of(self.old.program, self._data), self._from_version)
        except MigrationFailed as problem:
            raise Immovable(Reason(f"its migration failed: {problem}", line, new_line)) from None
        packed: dict[str, Packed] = {}
        for name, value in (found or {}).items():
            self.state.values.append(Raw(msgspec.json.encode(value)))
            packed[name] = {TAG: -len(self.state.values)}
        return packed

    def _check_operands(
        self, number: int, at: int, target: int, place: int, line: int, new_line: int
    ) -> None:
        ours = self.old.analyses[number].operands(at)
        theirs = self.new.analyses[target].operands(place)
        if ours is None or ours != theirs:
            message = "the expression around it has computed other values than the new version would have"
            raise Immovable(
                Reason(message, line, new_line, "give the values names, in statements before the await")
            )

    # -- function values --------------------------------------------------------------------------------------

    def _functions(self, frames: list[list[Packed]]) -> None:
        """Give the function values that can be reached the functions of the new version."""
        for number in sorted(self._reached([frames, list(self.state.globals.values())])):
            entry = self.heap[number]
            if entry[0] == Entry.FUNCTION:
                self.heap[number] = self._function(entry[1], entry[2])
        reached = self._reached([frames, list(self.state.globals.values())])
        for number, entry in enumerate(self.heap):
            if number not in reached and entry[0] == Entry.FUNCTION:
                self.heap[number] = [Entry.LIST, []]

    def _function(self, number: int, cells: list[int]) -> list[Packed]:
        path = function_path(self.old.root, number)
        before = self.old.functions[number]
        line = self.old.line(number, 0)
        found = None if path is None else self.alignment.counterpart(path)
        if path is None or not isinstance(found, tuple):
            message = f"a variable holds the function '{before.name}', which is not at this place of the new version"
            raise Immovable(Reason(message, line, None, "keep the function"))
        after = self.new.functions[found[-1].number]
        is_sure = before.name != _UNNAMED or self.running.get(number) == found[-1].number
        if not is_sure and path[-1].detail != found[-1].detail:
            message = "a variable holds a function without a name that has changed"
            raise Immovable(
                Reason(message, line, found[-1].line, "give functions that outlive an await a name")
            )
        given = dict(zip(before.capture_names, cells, strict=True))
        missing = [name for name in after.capture_names if name not in given]
        if missing:
            message = (
                f"a variable holds the function '{before.name}', which now uses the variable '{missing[0]}'"
            )
            raise Immovable(Reason(message, line, found[-1].line, "pass it as an argument"))
        return [Entry.FUNCTION, found[-1].number, [given[name] for name in after.capture_names]]

    def _reached(self, roots: list[Any]) -> set[int]:
        """Return the entries of the heap that can be reached. Captured cells are plain numbers."""
        found: set[int] = set()
        waiting: list[Any] = list(roots)
        for frame in roots[0]:
            if len(frame) > 2:
                waiting.extend({TAG: cell} for cell in frame[5])
        while waiting:
            value = waiting.pop()
            if isinstance(value, list):
                waiting.extend(value)
            elif isinstance(value, dict):
                mark = value.get(TAG)
                if type(mark) is int and 0 <= mark < len(self.heap) and mark not in found:
                    found.add(mark)
                    entry = self.heap[mark]
                    waiting.extend({TAG: cell} for cell in entry[2]) if entry[
                        0
                    ] == Entry.FUNCTION else waiting.extend(entry[1:])
                waiting.extend(value.values())
        return found

    # -- workflow-wide variables ------------------------------------------------------------------------------

    def _check_globals(self) -> None:
        unit = self.new.program.unit
        if self.old.root.detail == self.new.root.detail:
            return
        read = set(self.read)
        for function in self.new.functions[1:]:
            read |= globals_read(unit, function)
        assigned = self.new.program.mentioned
        for name in sorted(read & assigned - set(self.state.globals)):
            last = self.moves[-1]
            message = f"the new version reads the variable '{name}', which has no value"
            raise Immovable(Reason(message, last.old_line, last.new_line, ADVICE_MIGRATION))


_UNNAMED = "arrow function"


class _Variables:
    """The variables of one frame, given to the slots of the new version."""

    def __init__(
        self,
        mover: _Machine,
        packed: list[Packed],
        code: FunctionCode,
        live: frozenset[Variable],
        old: Path,
        new: Path,
        given: dict[str, Packed],
    ) -> None:
        self._mover = mover
        self._code = code
        self._live = live
        self._given = given
        self._lines = (old[-1].line, new[-1].line)
        number, position, _, _, variables, cells = packed
        self._before = mover.old.functions[number]
        slots = mover.old.program.live_slots(self._before, position)
        self._values = dict(zip(slots, variables, strict=True))
        self._cells = dict(zip(self._before.capture_names, cells, strict=True))
        ours, theirs = function_path(mover.old.root, number), function_path(mover.new.root, function_of(new))
        self._is_same = ours is not None and theirs is not None and ours[-1].detail == theirs[-1].detail
        self._named: set[int] = set()

    def slots(self, slots: tuple[int, ...], position: int) -> list[Packed]:
        named, hidden = _by_name(self._code, slots)
        old_named, old_hidden = _by_name(self._before, tuple(self._values))
        pairs: dict[int, int] = {}
        for name, found in named.items():
            ours = old_named.get(name, [])
            if len(ours) == len(found):
                pairs.update(zip(found, ours, strict=True))
        pairs.update(self._hidden(hidden, old_hidden))
        self._named = {slot for found in named.values() for slot in found}
        return [self._value(slot, pairs.get(slot)) for slot in slots]

    def _hidden(self, new: list[int], old: list[int]) -> dict[int, int]:
        """Pair the variables without names: iterators, the state of ``finally``. They come in the same order."""
        kinds = [_sort_of(self._code, slot) for slot in new]
        if kinds == [_sort_of(self._before, slot) for slot in old]:
            return dict(zip(new, old, strict=True))
        if any(slot in self._live for slot in new):
            message = "the loops and 'finally' blocks around it are others than before"
            raise Immovable(Reason(message, *self._lines, "leave them as they were"))
        return {}

    def _value(self, slot: int, old: int | None) -> Packed:
        value = _UNSET if old is None else self._values[old]
        is_boxed = slot in self._code.boxed
        name = self._code.name_of(slot) if slot in self._named else ""
        if name in self._given:
            return self._migrated(name, value if old in self._before.boxed and is_boxed else None, is_boxed)
        if old is not None and old in self._before.boxed:
            if is_boxed:
                self._check_set(slot, self._content(value), old)
                return value
            value = self._content(value)
        self._check_set(slot, value, old)
        return self._cell(value) if is_boxed else value

    def _migrated(self, name: str, cell: Packed, is_boxed: bool) -> Packed:
        """Return a variable with its value from the migration. A cell that functions share keeps its identity."""
        if cell is not None:
            self._mover.heap[cell[TAG]] = [Entry.CELL, self._given[name]]
            return cell
        return self._cell(self._given[name]) if is_boxed else self._given[name]

    def _check_set(self, slot: int, value: Packed, old: int | None) -> None:
        """Refuse a variable that is read without a value. The state of a ``finally`` block may lack its payload."""
        is_hidden = slot not in self._named
        if (
            value == _UNSET
            and slot in self._live
            and not is_hidden
            and not (self._is_same and old is not None)
        ):
            raise Immovable(self._missing(self._code.name_of(slot)))

    def _missing(self, name: str) -> Reason:
        message = f"the new version reads the variable '{name}', which has no value in the old one"
        return Reason(message, *self._lines, ADVICE_MIGRATION)

    def _content(self, reference: Packed) -> Packed:
        return self._mover.heap[reference[TAG]][1]

    def _cell(self, value: Packed) -> Packed:
        self._mover.heap.append([Entry.CELL, value])
        return {TAG: len(self._mover.heap) - 1}

    def captured(self) -> list[int]:
        found: list[int] = []
        for at, name in enumerate(self._code.capture_names):
            if name in self._given:
                found.append(
                    self._migrated(name, {TAG: self._cells[name]} if name in self._cells else None, True)[TAG]
                )
            elif name in self._cells:
                found.append(self._cells[name])
            elif ("captured", at) in self._live:
                raise Immovable(self._missing(name))
            else:
                found.append(self._cell(_UNSET)[TAG])
        return found


def _by_name(code: FunctionCode, slots: tuple[int, ...]) -> tuple[dict[str, list[int]], list[int]]:
    """Return the slots by name, outer variables first, and those without a name."""
    names = dict(_names(code))
    named: dict[str, list[int]] = {}
    hidden: list[int] = []
    for slot in slots:
        name = names.get(slot)
        if name is None:
            hidden.append(slot)
        else:
            named.setdefault(name, []).append(slot)
    return named, hidden


def _names(code: FunctionCode) -> Iterator[tuple[int, str]]:
    for scope in code.scopes:
        for slot, name in enumerate(scope.names, scope.first):
            if name is not None:
                yield slot, name


def _sort_of(code: FunctionCode, slot: int) -> tuple[str, int]:
    """Return what a variable without a name is for."""
    for op, a, b in code.instructions:
        if op == Op.ITERATE and a == slot:
            return ("iterator", b)
    if slot < code.parameters:
        return ("parameter", slot)
    scope = next(scope for scope in code.scopes if 0 <= slot - scope.first < len(scope.names))
    is_prepared = any(op == Op.SCOPE and a <= slot < b for op, a, b in code.instructions)
    return ("finally" if is_prepared else "key", slot - scope.first)
