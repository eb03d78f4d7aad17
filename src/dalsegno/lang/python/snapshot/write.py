"""Stores a machine. Raises `NotStorable`, naming the variable, for a value that cannot be stored.

Values are written into the object table: each object once, its parts before it, without recursion.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from types import BuiltinFunctionType, CellType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from dalsegno.lang.expressions.syntax.lexer import is_unicode
from dalsegno.lang.python.compile.fragments import code_path, makes_functions
from dalsegno.lang.python.durable_calls import Durable
from dalsegno.lang.python.environment import is_bound, stored_name_of
from dalsegno.lang.python.errors import NotStorable
from dalsegno.lang.python.exceptions import arguments_of, class_names
from dalsegno.lang.python.program import PythonProgram
from dalsegno.lang.python.runtime.frames import Frame
from dalsegno.lang.python.snapshot.errors import complaint, path_of, role_of
from dalsegno.lang.python.snapshot.explode import Parts, base64_text, explode
from dalsegno.lang.python.snapshot.format import (
    CONTENT,
    DEAD,
    FORMAT,
    FUNCTION_NAMES,
    MOST_PROMISES,
    Row,
    StoredFrame,
    StoredMachine,
    Tag,
    Written,
    sealed,
)
from dalsegno.lang.python.snapshot.objects import explode_object
from dalsegno.lang.python.snapshot.registry import WRAPPER, registered, state_of
from dalsegno.lang.python.traces import RECORD, TRACE, record_of, text_of, trace_of
from dalsegno.lang.runtime.effects import WaitingSignal
from dalsegno.lang.runtime.pending_effects import Requests
from dalsegno.lang.runtime.promises import Promise

if TYPE_CHECKING:
    from dalsegno.lang.python.runtime.interpreter import Interpreter

_UNKNOWN = object()
_MAX_PLAIN_INT = 2**53
_LONG_TEXT = 32 * 1024
_MANAGER_CODE = contextlib.contextmanager(lambda: iter(())).__code__
"""The code of every function that ``contextlib.contextmanager`` has made."""


class _Unnamed(Exception):
    """A class or function that no other process could find."""


class _Open:
    """An object being written: its row so far, and the values still to be written into it."""

    __slots__ = ("reference", "rest", "row", "value")

    def __init__(self, value: Any, parts: Parts) -> None:
        self.value = value
        self.row, items = list(parts[0]), parts[1]
        self.rest: Iterator[Any] = iter(items)
        self.reference: list[int] = [-1]


class Writer:
    """Writes an object table.

    ``outside`` maps the identities of the surroundings' cells to their names; ``line`` is the workflow's current
    line, for error messages.
    """

    def __init__(
        self,
        program: PythonProgram,
        outside: dict[int, str],
        line: int,
        being_tested: frozenset[int] = frozenset(),
    ) -> None:
        self._program = program
        self._outside = outside
        self._line = line
        self._references: dict[int, list[int]] = {}
        self._kept: list[Any] = []
        """Keeps written objects alive, so that their identities are not reused."""
        self._descriptions: dict[tuple[str | float | None, ...], int] = {}
        self._being_tested = being_tested
        """Exceptions whose parts are already being tested."""
        self._handles = 0
        self.rows: list[Row] = []
        self.promises: dict[int, Promise] = {}
        self.size = 200
        self._special: dict[type, Callable[[Any], Parts]] = {
            str: self._text,
            bytes: self._bytes,
            int: self._integer,
            float: self._float,
            ModuleType: self._module,
            CellType: self._cell,
            FunctionType: self._function,
            WRAPPER: self._cache,
        }

    def write(self, value: Any, what: str) -> Written:
        """Write a value. ``what`` names it in the error if it cannot be stored."""
        written = self._direct(value)
        if written is not _UNKNOWN:
            return written
        opened = [self._open(value, [], what)]
        while True:
            top = opened[-1]
            inner = self._fill(top)
            if inner is not None:
                opened.append(self._open(inner[0], opened, what))
                continue
            self._close(top)
            opened.pop()
            if not opened:
                return top.reference
            opened[-1].row.append(top.reference)

    def reference(self, value: Any) -> Written:
        """Return a reference to an object that was written already, else `DEAD`."""
        return self._references.get(id(value), DEAD)

    def _fill(self, top: _Open) -> tuple[Any] | None:
        """Write values into the row until one of them needs a row of its own first."""
        row = top.row
        for value in top.rest:
            kind = type(value)
            if kind is str and len(value) <= _LONG_TEXT and value.isascii():  # the common case
                self.size += len(value)
                row.append(value)
                continue
            written = self._direct(value)
            if written is _UNKNOWN:
                if kind is not dict or not self._plain_dict(value):
                    return (value,)
                written = self._references[id(value)]
            if kind is Promise and _extends(row, written):
                row[-1] = [row[-1][0], written[1], written[2]]
            else:
                row.append(written)
        return None

    def _plain_dict(self, value: dict[Any, Any]) -> bool:
        """Write a dict of plain values (texts, numbers …) at once: most values of workflows are such records."""
        row: Row = [Tag.DICT]
        size = 0
        for part in chain.from_iterable(value.items()):
            kind = type(part)
            if kind is str:
                if len(part) > _LONG_TEXT or not part.isascii():
                    return False
                size += len(part)
            elif not (
                part is None or kind is bool or (kind is int and -_MAX_PLAIN_INT < part < _MAX_PLAIN_INT)
            ):
                return False
            row.append(part)
        self._references[id(value)] = [len(self.rows)]
        self._kept.append(value)
        self.rows.append(row)
        self.size += size + 8 * len(row)
        return True

    def _close(self, top: _Open) -> None:
        top.reference[0] = len(self.rows)
        self.rows.append(top.row)
        self.size += 8 * len(top.row)

    # -- values with and without a row --------------------------------------------------------------------------

    def _direct(self, value: Any) -> Written:
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is str:
            if len(value) <= _LONG_TEXT and (value.isascii() or is_unicode(value)):
                self.size += len(value)
                return value
        elif kind is int:
            if -_MAX_PLAIN_INT < value < _MAX_PLAIN_INT:
                return value
        elif kind is float:
            if math.isfinite(value):
                return value
        elif kind is Promise:
            return self._promise(value)
        return self._references.get(id(value), _UNKNOWN)

    def _promise(self, promise: Promise) -> Written:
        self._handles += 1
        if self._handles > MOST_PROMISES:
            raise NotStorable(
                f"the workflow holds more than {MOST_PROMISES:,} promises at line {self._line}", self._line
            )
        self.promises[promise.number] = promise
        key: tuple[str | float | None, ...] = (promise.kind, promise.name, promise.due)
        if promise.type is not None:
            key = (*key, promise.type)
        row = self._descriptions.get(key)
        if row is None:
            row = self._descriptions[key] = len(self.rows)
            self.rows.append([Tag.PROMISE, *key])
        return [promise.number, promise.number + 1, row]

    # -- rows -------------------------------------------------------------------------------------------------

    def _open(self, value: Any, around: list[_Open], what: str) -> _Open:
        try:
            parts = self._parts(value)
        except _Unnamed:
            parts = None
        if parts is None:
            inward = [*(outer.value for outer in around), value]
            path = path_of(list(pairwise(inward)))
            raise NotStorable(complaint(what, path, value, self._line), self._line)
        opened = _Open(value, parts)
        self._references[id(value)] = opened.reference
        self._kept.append(value)
        self._kept.append(parts)
        return opened

    def _parts(self, value: Any) -> Parts | None:
        special = self._special.get(type(value))
        if special is not None:
            return special(value)
        if isinstance(value, BaseException):
            return self._exception(value)
        if isinstance(value, Durable):
            return self._durable(value)
        if isinstance(value, type):
            return [Tag.NAME, self._name(value)], ()
        if isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, ModuleType | type | None):
            return self._builtin(value)
        stored_type = registered(type(value))
        if stored_type is not None:
            return [Tag.REGISTERED, stored_type.name], [stored_type.dump(value)]
        parts = explode(value, self._name, self._program.naming.reach.permits_method)
        return parts if parts is not None else explode_object(value, self._class_name)

    def _class_name(self, kind: type) -> str:
        name = self._program.naming.instance_class_name(kind)
        if name is None:
            raise _Unnamed
        return name

    def _name(self, thing: Any) -> str:
        name = self._program.naming.name_of(thing)
        if name is None:
            raise _Unnamed
        return name

    def _durable(self, value: Durable[Any, Any]) -> Parts:
        """Return a durable callable by its registered name; a copy with other options is stored with them."""
        known = self._program.naming.durable(value.kind, value.name)
        if known is None or known.function is not value.function:
            raise _Unnamed
        options = None if value is known else dict(value.options)
        return [Tag.DURABLE, value.kind, value.name], [options]

    def _builtin(self, value: Any) -> Parts:
        if isinstance(value.__self__, type):
            if not self._program.naming.reach.permits_method(value.__self__, value.__name__):
                raise _Unnamed
            return [Tag.METHOD, value.__name__], [value.__self__]
        return [Tag.NAME, self._name(value)], ()

    def _text(self, value: str) -> Parts:
        if not is_unicode(value):
            return [Tag.BROKEN_TEXT, base64_text(value.encode("utf-8", "surrogatepass"))], ()
        self.size += len(value)
        return [Tag.LONG_TEXT, value], ()

    def _bytes(self, value: bytes) -> Parts:
        self.size += len(value)
        return [Tag.BYTES, base64_text(value)], ()

    def _integer(self, value: int) -> Parts:
        text = hex(value)
        self.size += len(text)
        return [Tag.BIG_INT, text], ()

    def _float(self, value: float) -> Parts:
        return [Tag.SPECIAL_FLOAT, repr(value)], ()

    def _module(self, value: ModuleType) -> Parts:
        name = self._program.naming.module_name(value)
        if name is None:
            raise _Unnamed
        return [Tag.MODULE, name], ()

    def _cell(self, value: CellType) -> Parts:
        if id(value) in self._outside:
            return [Tag.OUTSIDE, self._outside[id(value)]], ()
        try:
            return [Tag.CELL], [value.cell_contents]
        except ValueError:
            return [Tag.CELL], ()

    def _function(self, value: FunctionType) -> Parts:
        """Return the parts of a function.

        A nested function is stored by its code and variables; one that another function created, by the name of that
        function; any other by its own name.
        """
        cells = value.__closure__ or ()
        for number, natives in enumerate(self._program.natives):
            path = natives.paths.get(id(value.__code__))
            if path is not None:
                return [Tag.FUNCTION, number, dotted_path(path), len(cells)], [*cells, *_settings(value)]
        name = self._program.naming.name_of(value)
        if name is not None:
            return [Tag.NAME, name], ()
        if value.__code__ is _MANAGER_CODE and isinstance(value.__dict__.get("__wrapped__"), FunctionType):
            return [Tag.MANAGER], [value.__dict__["__wrapped__"]]
        return self._closure(value)

    def _closure(self, value: FunctionType) -> Parts:
        """Return a function created by another one.

        Functions of the standard library are excluded: what theirs create depends on hidden state.
        """
        code = value.__code__
        module = stored_name_of(str(value.__globals__.get("__name__")))
        maker_name = f"{module}.{code.co_qualname.partition('.<locals>.')[0]}"
        maker = self._program.naming.find(maker_name)
        path = code_path(maker.__code__, code) if makes_functions(maker) else None
        if path is None:
            raise _Unnamed
        cells = value.__closure__ or ()
        head = [Tag.CLOSURE, maker_name, dotted_path(path), code.co_qualname, len(cells)]
        return head, [*cells, *_settings(value)]

    def _cache(self, value: Any) -> Parts:
        """Return a cache: one of the module by its name, one of the workflow with its cached results."""
        name = self._program.naming.name_of(value)
        if name is not None:
            return [Tag.NAME, name], ()
        if not isinstance(value.__wrapped__, FunctionType):
            raise _Unnamed
        return [Tag.CACHE], state_of(value)

    # -- exceptions -------------------------------------------------------------------------------------------

    def _exception(self, error: BaseException) -> Parts:
        """Return the parts of an exception.

        It is never refused: arguments and attributes that cannot be stored are omitted.
        """
        record = record_of(error)
        head = [
            Tag.EXCEPTION,
            msgspec.json.encode(class_names(type(error))).decode(),
            text_of(error),
            msgspec.json.encode(trace_of(error)).decode(),
            None if record is None else msgspec.json.encode(record).decode(),
            error.__suppress_context__,
        ]
        arguments = arguments_of(error)
        if not self._storable(error, arguments):
            arguments = (text_of(error),)
        state = {
            name: value
            for name, value in error.__dict__.items()
            if name not in (TRACE, RECORD) and self._storable(error, value)
        }
        return head, [arguments, state or None, error.__cause__, error.__context__]

    def _storable(self, error: BaseException, value: Any) -> bool:
        """Try to store the value in a separate table. An exception met again on the way counts as storable."""
        if id(error) in self._being_tested:
            return False
        probe = Writer(self._program, self._outside, self._line, self._being_tested | {id(error)})
        try:
            probe.write(value, "")
        except NotStorable:
            return False
        return True


def dotted_path(path: tuple[int, ...]) -> str:
    return ".".join(map(str, path))


def _settings(function: FunctionType) -> list[Any]:
    """Return a function's settings other than its code and variables.

    Names are included only if they differ from those of its definition.
    """
    found = [function.__defaults__, function.__kwdefaults__, function.__dict__ or None]
    plain = FunctionType(function.__code__, function.__globals__, None, None, function.__closure__)
    names = {
        name: getattr(function, name)
        for name in sorted(FUNCTION_NAMES)
        if getattr(function, name) != getattr(plain, name)
    }
    return [*found, names] if names else found


def _extends(row: Row, written: Written) -> bool:
    """Return whether a promise extends the run at the end of the row: the promises of one loop are one entry."""
    last = row[-1] if row[0] in (Tag.LIST, Tag.TUPLE, Tag.GROUP) else None
    return type(last) is list and len(last) == 3 and last[1] == written[0] and last[2] == written[2]


BLOB_BYTES = 32 * 1024


class Frozen:
    """A stored machine before it becomes bytes, and the promises it reaches."""

    __slots__ = ("machine", "promises", "size")

    def __init__(self, machine: StoredMachine, promises: dict[int, Promise], size: int) -> None:
        self.machine = machine
        self.promises = promises
        self.size = size
        """The approximate size in bytes."""

    def update(self, requests: Requests) -> None:
        """Record that the driver has taken the machine's requests."""
        self.machine = msgspec.structs.replace(self.machine, **_requested(requests))

    def signals(self) -> tuple[WaitingSignal, ...]:
        waiting = [promise for _, promise in sorted(self.promises.items()) if promise.kind == "signal"]
        return tuple(WaitingSignal(promise.id, promise.name or "", promise.due) for promise in waiting)

    def to_bytes(self, put: Callable[[bytes], str] | None) -> bytes:
        """Return the bytes. ``put`` stores values longer than 32 KiB elsewhere and returns their names."""
        if put is None or self.size <= BLOB_BYTES:
            return sealed(msgspec.json.encode(self.machine))
        rows = _paged([_externalised(row, put) for row in self.machine.rows], put)
        return sealed(msgspec.json.encode(msgspec.structs.replace(self.machine, rows=rows)))


def _externalised(row: Row, put: Callable[[bytes], str]) -> Row:
    if row[0] in (Tag.BYTES, Tag.LONG_TEXT) and len(row[1]) > BLOB_BYTES:
        return [Tag.BLOB, row[0], put(row[1].encode())]
    return row


def _paged(rows: list[Row], put: Callable[[bytes], str]) -> list[Row]:
    """Move runs of rows that fill a page out of the snapshot; the rest stays."""
    found: list[Row] = []
    page: list[Row] = []
    size = 0
    for row in rows:
        page.append(row)
        size += len(msgspec.json.encode(row)) + 1
        if size > BLOB_BYTES:
            found.append([Tag.BLOB, Tag.ROWS, put(msgspec.json.encode(page))])
            page, size = [], 0
    return [*found, *page]


def freeze(machine: Interpreter) -> Frozen:
    """Return the machine's state between two instructions. Raise `NotStorable` if a value cannot be stored."""
    writer = Writer(machine.program, _outside(machine), machine.line)
    weak: list[tuple[list[Written], int, CellType]] = []
    frames = [_frame(machine, frame, writer, weak) for frame in machine.frames]
    timeouts = [writer.write(timeout, "a timeout") for timeout in machine.timeouts]
    for variables, index, cell in weak:  # only now are all holders of the cells known
        variables[index] = writer.reference(cell)
    for frame in frames:
        while frame.variables and frame.variables[-1] == DEAD:
            frame.variables.pop()
    stored = StoredMachine(
        format=FORMAT,
        program=machine.program.hash,
        status=machine.status,
        made=machine.requests.made,
        line=machine.line,
        execution=machine.requests.execution,
        context=machine.context,
        frames=frames,
        timeouts=timeouts,
        rows=writer.rows,
        result=machine.result,
        error=machine.error,
        **_requested(machine.requests),
    )
    return Frozen(stored, writer.promises, writer.size)


def _requested(requests: Requests) -> dict[str, Any]:
    return {
        "effects": [(type(effect).__name__, effect) for effect in requests.effects],
        "logs": list(requests.logs),
    }


def _outside(machine: Interpreter) -> dict[int, str]:
    """Return the cells of the surroundings by identity: nested functions hold them too."""
    return {id(machine.outside_cell(name)): name for name in machine.program.outside}


def _frame(
    machine: Interpreter, frame: Frame, writer: Writer, weak: list[tuple[list[Written], int, CellType]]
) -> StoredFrame:
    stack = [writer.write(value, role_of(frame, index)) for index, value in enumerate(frame.stack)]
    live, shared = machine.program.masks[frame.number]
    # A caller's await is behind it, but may still throw: the block that handles that reads variables, too.
    waits_at = frame.position if frame is machine.frames[-1] else frame.position - 1
    alive = live[waits_at] if waits_at < len(live) else 0
    variables: list[Written] = [DEAD] * (frame.code.own + len(frame.code.captured))
    for index, cell in enumerate(frame.cells[: len(variables)]):
        name = f"variable '{frame.code.variables[index].partition('@')[0]}'"
        if not alive >> index & 1:
            if shared >> index & 1:
                weak.append((variables, index, cell))
        elif shared >> index & 1:
            variables[index] = writer.write(cell, name)
        elif is_bound(cell):
            variables[index] = [CONTENT, writer.write(cell.cell_contents, name)]
    handled = [writer.write(error, "the exception being handled") for error in frame.handled]
    return StoredFrame(frame.number, frame.position, stack, variables, handled)
