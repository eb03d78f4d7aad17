"""Restores a machine from a snapshot and checks its state against the program; the inverse of write.py.

Snapshots are not trusted. Invalid data raises `SnapshotError`, or one of Python's lookup errors, which `restore`
converts to it: the result is a machine or a `SnapshotError`, whatever the bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.flow.runtime.instructions import Iteration
from dalsegno.lang.flow.snapshot.format import STATUSES, State, decoded, traceback_key
from dalsegno.lang.flow.snapshot.write import EFFECTS, KINDS, TAG, Entry, Kept, Mark, Packed
from dalsegno.lang.runtime.code import FunctionCode, Op
from dalsegno.lang.runtime.effects import Effect, ErrorValue
from dalsegno.lang.runtime.frames import CallbackFrame, Frame
from dalsegno.lang.runtime.pending_effects import Requests
from dalsegno.lang.runtime.promises import AnyPromise, Group, Promise, Settled
from dalsegno.lang.stdlib.callbacks import CALLBACK_METHODS
from dalsegno.lang.stdlib.orchestration import MAX_GROUP_DEPTH
from dalsegno.lang.stdlib.registry import SCRIPT_FUNCTIONS
from dalsegno.lang.values.kinds import UNSET, Cell, Configured, FunctionValue, Vacant, Value

if TYPE_CHECKING:
    from dalsegno.lang.flow.runtime.runner import Runner

MAX_PROMISES = 1_000_000
"""Maximum number of promises in the marks of one snapshot."""

_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NOT_BUILT: Any = object()


class Unpacker:
    """Unpacks the values of one snapshot.

    A variable's plain value above a certain size stays `Vacant` until it is read; if it is stored elsewhere, it must be
    provided by then. ``vacancies`` gives the holder and key of each. A vacancy outside of a variable is ``needed``
    before the machine continues.
    """

    def __init__(
        self,
        functions: tuple[FunctionCode, ...],
        heap: list[list[Packed]],
        values: list[Raw],
        tracebacks: Mapping[str, str],
    ) -> None:
        self.functions = functions
        self.tracebacks = tracebacks
        self.entries = heap
        self.vacancies: list[tuple[Any, Any, Vacant]] = []
        self.needed: dict[str, None] = {}
        self.promises_left = MAX_PROMISES
        self.blobs: dict[str, Vacant] = {}
        self.kept: Kept = {}
        self.values = [Vacant(data=value) for value in values]
        self.heap: list[Value] = [_SHELLS[entry[0]]() for entry in heap]
        for number, entry in enumerate(heap):
            if entry[0] == Entry.FUNCTION:
                self.heap[number] = self.function(*entry[1:])
        for number, entry in enumerate(heap):
            self.fill(number, entry)

    # the heap

    def fill(self, number: int, entry: list[Packed]) -> None:
        made = self.heap[number]
        if entry[0] == Entry.CELL:
            made.value = self.variable(made, 0, entry[1])
        elif entry[0] == Entry.LIST:
            made.extend(self.items(entry[1]))
            self.find_vacancies(made)
        elif entry[0] == Entry.OBJECT:
            made.update(zip(entry[1], self.items(entry[2]), strict=True))
            self.find_vacancies(made)
        elif made is _NOT_BUILT:
            self.group(number)

    def function(self, code: int, cells: list[int]) -> FunctionValue:
        function = self.functions[code] if code >= 0 else None
        if function is None or len(cells) != len(function.captures):
            raise SnapshotError("the snapshot does not fit its program: a function captures other variables")
        return FunctionValue(function, tuple([self.cell(number) for number in cells]))

    def cell(self, number: int) -> Cell:
        found = self.heap[number] if number >= 0 else None
        if type(found) is not Cell:
            raise SnapshotError("the snapshot refers to a variable that is not there")
        return found

    def group(self, number: int, depth: int = 1) -> Group:
        """Return a group. Inner groups are built first; their depth is limited below Python's recursion limit."""
        made = self.heap[number]
        if isinstance(made, Group):
            return made
        if depth > MAX_GROUP_DEPTH or self.entries[number][0] != Entry.GROUP:
            raise SnapshotError("the snapshot holds a group of promises that cannot be")
        _, kind, packed, keys, shape, cancel = self.entries[number]
        items: list[AnyPromise] = []
        for item in packed:
            mark = item[TAG]
            if type(mark) is int:
                items.append(self.group(mark, depth + 1))
            else:
                items.extend(self.described(mark))
        if keys is not None and len(keys) != len(items):
            raise SnapshotError("the snapshot holds a group of promises that cannot be")
        group = Group(kind, tuple(items), None if keys is None else tuple(keys), shape, cancel)
        self.heap[number] = group
        return group

    # values

    def value(self, packed: Packed) -> Value:
        """Decode a value that is not a variable's: at once."""
        value = self.lazy(packed)
        return decoded(value) if type(value) is Vacant else value

    def lazy(self, packed: Packed) -> Value:
        if type(packed) is not dict or TAG not in packed:
            return packed
        mark = packed[TAG]
        if type(mark) is not int:
            return self.described(mark)[0]
        if mark < 0:
            return self.values[-mark - 1]
        found = self.heap[mark]
        return self.group(mark) if found is _NOT_BUILT else found

    def variable(self, holder: Any, key: Any, packed: Packed) -> Value:
        """Return the value of a variable, which may stay vacant until it is read."""
        value = self.lazy(packed)
        if type(value) is Vacant and value.blob:
            self.vacancies.append((holder, key, value))
        return value

    def items(self, packed: list[Packed]) -> list[Value]:
        """Return values in sequence; a mark may stand for several."""
        values: list[Value] = []
        for item in packed:
            if type(item) is dict and TAG in item and type(item[TAG]) is list:
                values.extend(self.described(item[TAG]))
            else:
                values.append(self.value(item))
        return values

    def stack(self, packed: list[Packed]) -> list[Value]:
        values = [self.value(item) for item in packed]
        self.find_vacancies(values)
        return values

    def find_vacancies(self, holder: Any) -> None:
        if Vacant in map(type, holder if type(holder) is list else holder.values()):
            for key, value in list(enumerate(holder)) if type(holder) is list else list(holder.items()):
                self.need(holder, key, value)

    def need(self, holder: Any, key: Any, value: Value) -> None:
        if type(value) is Vacant and value.blob:
            self.vacancies.append((holder, key, value))
            self.needed[value.blob] = None

    def described(self, mark: list[Packed]) -> list[Value]:
        return _DESCRIBED[mark[0]](self, *mark[1:])

    # marks

    def promises(
        self, count: int, number: int, kind: int, name: str | None = None, due: float | None = None
    ) -> list[Value]:
        self.promises_left -= count
        if not count > 0 or self.promises_left < 0 or number < 0 or kind < 0:
            raise SnapshotError("the snapshot holds more promises than there can be")
        return [Promise(number + step, KINDS[kind], name, due) for step in range(count)]

    def promise(self, *described: Any) -> list[Value]:
        return self.promises(1, *described)

    def error(
        self,
        code: str,
        message: str,
        kind: str | None,
        data: Packed,
        stack: list[str],
        classes: list[str],
        args: Packed,
        attributes: Packed = None,
    ) -> list[Value]:
        plain = tuple(self.value(args))
        kept = self.value(attributes)
        made = ErrorValue(code, message, kind, self.value(data), tuple(stack), tuple(classes), plain, kept)
        traceback = self.tracebacks.get(traceback_key(made)) if self.tracebacks else None
        return [made if traceback is None else replace(made, traceback=traceback)]

    def iteration(self, items: Packed, index: int) -> list[Value]:
        stored = self.lazy(items)
        value = decoded(stored) if type(stored) is Vacant else stored
        if type(stored) is Vacant and stored.data is not None:
            self.kept[id(value)] = (value, stored.data)
        made = Iteration(value, index)
        self.need(made, "items", value)
        return [made]

    def settled(self, packed: Packed) -> list[Value]:
        made = Settled(self.value(packed))
        self.need(made, "value", made.value)
        return [made]

    def blob(self, name: str) -> list[Value]:
        return [self.blobs.setdefault(name, Vacant(name))]


_SHELLS: dict[int, Callable[[], Value]] = {
    Entry.CELL: Cell,
    Entry.FUNCTION: lambda: _NOT_BUILT,
    Entry.GROUP: lambda: _NOT_BUILT,
    Entry.LIST: list,
    Entry.OBJECT: dict,
}

_DESCRIBED: dict[str, Callable[..., list[Value]]] = {
    Mark.NUMBER: lambda unpacker, text: [_NUMBERS[text]],
    Mark.PROMISE: Unpacker.promise,
    Mark.PROMISES: Unpacker.promises,
    Mark.ERROR: Unpacker.error,
    Mark.BUILTIN: lambda unpacker, name: [SCRIPT_FUNCTIONS[name]],
    Mark.CONFIGURED: lambda unpacker, namespace, options: [Configured(namespace, options)],
    Mark.UNSET: lambda unpacker: [UNSET],
    Mark.ITERATION: Unpacker.iteration,
    Mark.INDEXES: lambda unpacker, stop, index: [Iteration(range(stop), index)],
    Mark.QUOTED: lambda unpacker, value: [value],
    Mark.SETTLED: Unpacker.settled,
    Mark.BLOB: Unpacker.blob,
}


def restore(machine: Runner, state: State) -> Unpacker:
    """Fill a new machine and return its unpacker."""
    try:
        return _restore(machine, state)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
        message = f"the snapshot is damaged: {type(problem).__name__} while it was read: {problem}"
        raise SnapshotError(message) from None


def _restore(machine: Runner, state: State) -> Unpacker:
    unpacker = Unpacker(machine.unit.functions, state.heap, state.values, state.tracebacks)
    machine.status = STATUSES[state.status] if state.status >= 0 else "failed"
    machine.frames = [_frame(machine, unpacker, packed) for packed in state.frames]
    variables = machine.globals = {}
    for name, packed in state.globals.items():
        variables[name] = unpacker.variable(variables, name, packed)
    machine.requests = Requests(state.execution, state.made)
    machine.requests.effects = [_effect(packed) for packed in state.effects]
    machine.requests.logs = state.logs
    machine.result = unpacker.value(state.result)
    machine.error = unpacker.value(state.error)
    machine.finished = True
    if state.meter is not None:
        meter = machine.host.meter
        instructions, work, meter.bytes_left = state.meter
        meter.work_left = min(instructions, work)
    machine.needed = tuple(unpacker.needed)
    _check(machine)
    return unpacker


def _check(machine: Runner) -> None:
    if machine.status == "failed" and type(machine.error) is not ErrorValue:
        raise SnapshotError("the snapshot is damaged: it failed without an error")
    if machine.status == "paused" and not machine.frames:
        raise SnapshotError("the snapshot is damaged: there is nothing to continue with")
    if machine.status == "suspended":
        frame = machine.frames[-1]
        if (
            not isinstance(frame, Frame)
            or frame.function.instructions[frame.position][0] != Op.AWAIT
            or type(frame.stack[-1]) not in (Promise, Group)
        ):
            raise SnapshotError("the snapshot is damaged: it does not wait for anything")


def _frame(machine: Runner, unpacker: Unpacker, packed: list[Packed]) -> Frame | CallbackFrame:
    if len(packed) == 2:
        return _callback_frame(unpacker, *packed)
    number, position, argument_count, stack, variables, cells = packed
    function = machine.unit.functions[number] if number >= 0 else None
    if function is None or not 0 <= position < len(function.instructions):
        raise SnapshotError(
            "the snapshot does not fit its program: it has stopped where there is no instruction"
        )
    live = machine.program.live_slots(function, position)
    if len(live) != len(variables) or len(cells) != len(function.captures):
        raise SnapshotError("the snapshot does not fit its program: it has other variables")
    frame = Frame(function, [None] * function.variables, (), argument_count)
    frame.position = position
    frame.stack = unpacker.stack(stack)
    for slot, value in zip(live, variables, strict=True):
        frame.slots[slot] = unpacker.variable(frame.slots, slot, value)
        if (type(frame.slots[slot]) is Cell) != (slot in function.boxed):
            raise SnapshotError("the snapshot does not fit its program: a variable is shared by no function")
    if cells:
        frame.cells = tuple([unpacker.cell(cell) for cell in cells])
    return frame


def _callback_frame(unpacker: Unpacker, name: str, state: list[Packed]) -> CallbackFrame:
    kind: Any = CALLBACK_METHODS[name]
    frame: CallbackFrame = kind.__new__(kind)
    values = unpacker.stack(state)
    for field, value in zip(kind.state, values, strict=True):
        setattr(frame, field, value)
        unpacker.need(frame, field, value)
    return frame


def _effect(packed: list[Any]) -> Effect:
    made: Effect = EFFECTS[packed[0]](*packed[1:])
    return made


def load_blob(data: bytes) -> Any:
    """Load a value that was stored separately."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as problem:
        raise SnapshotError(f"a stored value cannot be read: {problem}") from None


def fill(holder: Any, key: Any, vacancy: Vacant, value: Any) -> None:
    """Put a loaded value where its vacancy still is."""
    if isinstance(holder, list | dict | Cell):
        if holder[key] is vacancy:
            holder[key] = value
    elif getattr(holder, key) is vacancy:
        setattr(holder, key, value)
