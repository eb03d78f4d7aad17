"""Restores a machine's state from bytes. Any damage raises `SnapshotError`.

It reads the object table that `write` wrote, as objects of this process, including aliases and cycles.
Rows are built in order. Objects that can be created empty may be requested before their turn; an object that cannot be
filled yet, because a part is still to come, is filled at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CellType
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.python.program import PythonProgram
from dalsegno.lang.python.runtime.frames import Frame
from dalsegno.lang.python.snapshot.build import BUILDERS, SHELLS, NotYet, unknown
from dalsegno.lang.python.snapshot.format import (
    CONTENT,
    DEAD,
    FORMAT,
    MOST_PROMISES,
    Row,
    StoredFrame,
    StoredMachine,
    Tag,
    Written,
    unsealed,
)
from dalsegno.lang.python.timeouts import Timeout
from dalsegno.lang.runtime.effects import (
    AwaitSignal,
    Cancel,
    Effect,
    LeafKind,
    SetTags,
    StartTask,
    StartTimer,
    StartWorkflow,
)
from dalsegno.lang.runtime.promises import Group, Promise, Settled

if TYPE_CHECKING:
    from dalsegno.lang.python.runtime.machine import PythonMachine

_ABSENT = object()
_SCALARS = frozenset((bool, bytes, float, int, str, type(None)))
_LEAF_KINDS = frozenset(get_args(LeafKind))


class Reader:
    """Reads an object table.

    ``outside`` returns the cell of a name in the surroundings; ``made`` is the maximum number of promises.
    """

    def __init__(
        self, program: PythonProgram, outside: Callable[[str], CellType], rows: list[Row], made: int
    ) -> None:
        self.program = program
        self.outside: Callable[[str], CellType] = outside
        self._rows = rows
        self._made = made
        self._built: list[Any] = [_ABSENT] * len(rows)
        self._last: list[Callable[[], None]] = []
        self._unfilled: set[int] = set()
        """Rows whose objects exist and are still empty."""
        self._is_last_round = False
        self._promises_left = MOST_PROMISES

    def read(self) -> None:
        """Build all rows. Objects that wait for each other in a cycle are completed at the end, in order."""
        left = list(range(len(self._rows)))
        while left:
            waiting = [index for index in left if not self._done(index)]
            if len(waiting) == len(left):
                if self._is_last_round:
                    raise SnapshotError(
                        "the snapshot is damaged: objects in it cannot be built one after the other"
                    )
                self._is_last_round = True
            left = waiting
        for finish in self._last:
            finish()

    def _done(self, index: int) -> bool:
        """Build or fill an object; return False if that must wait."""
        row = self._rows[index]
        builder = BUILDERS.get(row[0])
        if builder is not None:
            try:
                self._built[index] = builder(self, row)
            except NotYet:
                return False
            return True
        if row[0] == Tag.DICT and self._built[index] is _ABSENT and list not in map(type, row):
            self._built[index] = dict(zip(row[1::2], row[2::2], strict=True))
            return True
        return self._filled(index)

    # -- objects that must be complete before use ---------------------------------------------------------------

    def wait_for(self, written: Written) -> None:
        """Complete this object first."""
        is_row = type(written) is list and len(written) == 1
        if is_row and written[0] in self._unfilled and not self._is_last_round:
            raise NotYet

    def wait_for_all(self) -> None:
        """Complete all objects, except those in a cycle with the object that is being filled."""
        if len(self._unfilled) > 1 and not self._is_last_round:
            raise NotYet

    def wait_for_keys(self, keys: Iterable[Any]) -> None:
        """Complete keys before they are hashed: an object's hash may depend on all of its attributes."""
        if len(self._unfilled) > 1 and any(type(key) not in _SCALARS for key in keys):
            self.wait_for_all()

    def instance_class(self, name: str) -> type:
        """Return the class of a stored instance, if the workflow's code reaches it."""
        found = self.program.naming.find_instance_class(name)
        if found is None:
            raise unknown(name)
        return found

    def value(self, written: Written) -> Any:
        if type(written) is not list:
            return written
        if len(written) == 1:
            return self._object(written[0])
        [promise] = self._promises(written)
        return promise

    def values(self, written: Iterable[Written]) -> list[Any]:
        """Return the values. A run of promises becomes as many items."""
        found: list[Any] = []
        for one in written:
            if type(one) is not list:
                found.append(one)
            elif len(one) == 3:
                found.extend(self._promises(one))
            else:
                found.append(self.value(one))
        return found

    def entries(self, written: list[Written]) -> Iterator[tuple[Any, Any]]:
        parts = [one if type(one) is not list else self.value(one) for one in written]
        return zip(parts[::2], parts[1::2], strict=True)

    def at_the_end(self, finish: Callable[[], None]) -> None:
        self._last.append(finish)

    def _object(self, index: int) -> Any:
        found = self._built[index]
        if found is _ABSENT:
            found = self._shell(index)
        return found

    def _shell(self, index: int) -> Any:
        """Create an empty object before its turn."""
        row = self._rows[index]
        kind = SHELLS.get(row[0])
        if kind is None:
            raise NotYet
        made = self._built[index] = kind[0](self, row)
        self._unfilled.add(index)
        return made

    def _filled(self, index: int) -> bool:
        row = self._rows[index]
        kind = SHELLS.get(row[0])
        if kind is None:
            raise SnapshotError(f"the snapshot holds a kind of object this version does not know: '{row[0]}'")
        try:
            kind[1](self, self._object(index), row)
        except NotYet:
            return False
        self._unfilled.discard(index)
        return True

    def _promises(self, written: list[Any]) -> list[Promise]:
        start, stop, description = written
        self._promises_left -= stop - start
        if not 0 <= start < stop <= self._made or self._promises_left < 0:
            raise SnapshotError("the snapshot mentions promises that were never made")
        tag, kind, name, due = self._rows[description]
        known = tag == Tag.PROMISE and kind in _LEAF_KINDS
        if not known or not isinstance(name, str | None) or not isinstance(due, int | float | None):
            raise SnapshotError("the snapshot is damaged: a promise has no description")
        return [Promise(number, kind, name, due) for number in range(start, stop)]


MOST_BYTES = 256 * 1024 * 1024
_EFFECTS: dict[str, type[Effect]] = {
    kind.__name__: kind for kind in (StartTask, StartWorkflow, StartTimer, AwaitSignal, Cancel, SetTags)
}
_IN_PAGE = f'["{Tag.BLOB}",'.encode()
"""The beginning of a row that names a blob."""
NO_BLOBS: Mapping[str, bytes] = {}
_STATUSES = frozenset(("suspended", "paused", "completed", "failed"))
_decoder = msgspec.json.Decoder(StoredMachine)


def decode(data: bytes) -> StoredMachine:
    if len(data) > MOST_BYTES:
        raise SnapshotError(
            f"a snapshot of {len(data):,} bytes is larger than {MOST_BYTES:,}, the most there can be"
        )
    try:
        stored = _decoder.decode(unsealed(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotError(f"this is not a snapshot of a Python workflow: {error}") from error
    if stored.format != FORMAT:
        raise SnapshotError(f"the snapshot has format {stored.format}; this version knows {FORMAT}")
    return stored


def blobs_in(data: bytes, known: Mapping[str, bytes] = NO_BLOBS) -> tuple[str, ...]:
    """Return the names of the blobs that the snapshot needs and that are not in ``known``.

    A page of rows may name further blobs: call again with the pages until no blob is missing.
    """
    rows = decode(data).rows
    names = dict.fromkeys(_blob_names(rows))
    for row in rows:
        if row[:2] == [Tag.BLOB, Tag.ROWS] and _IN_PAGE in known.get(row[2], b""):
            names.update(dict.fromkeys(_blob_names(_page(known[row[2]]))))
    return tuple(name for name in names if name not in known)


def _page(blob: bytes) -> list[Row]:
    try:
        return msgspec.json.decode(blob, type=list[Row])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotError(f"a page of the snapshot cannot be read: {error}") from error


def _blob_names(rows: list[Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row[2] for row in rows if row and row[0] == Tag.BLOB))


def thaw(machine: PythonMachine, data: bytes, blobs: Mapping[str, bytes]) -> None:
    """Load the stored state into a fresh machine of the same program."""
    stored = decode(data)
    if stored.program != machine.program.hash:
        raise SnapshotError(
            f"the snapshot belongs to another version of the workflow '{machine.program.name}'"
        )
    try:
        _restore(machine, stored, blobs)
    except SnapshotError:
        raise
    except Exception as error:  # damage can surface anywhere, also in user classes
        raise SnapshotError(f"the snapshot cannot be read: {type(error).__name__}: {error}") from error


def _restore(machine: PythonMachine, stored: StoredMachine, blobs: Mapping[str, bytes]) -> None:
    reader = Reader(machine.program, machine.outside_cell, _with_blobs(stored.rows, blobs), stored.made)
    reader.read()
    if stored.status not in _STATUSES:
        raise SnapshotError(f"the snapshot has an unknown status, '{stored.status}'")
    machine.frames = [_frame(machine, frame, reader) for frame in stored.frames]
    machine.timeouts = [_timeout(reader.value(written)) for written in stored.timeouts]
    machine.status = stored.status  # type: ignore[assignment]
    machine.result, machine.error = stored.result, stored.error
    machine.context = stored.context
    machine.requests.made = stored.made
    machine.requests.execution = stored.execution
    machine.requests.effects.extend(
        msgspec.convert(effect, _EFFECTS[name]) for name, effect in stored.effects
    )
    machine.requests.logs.extend(stored.logs)
    machine.last_line = stored.line
    _check(machine)


def _with_blobs(rows: list[Row], blobs: Mapping[str, bytes]) -> list[Row]:
    missing = [name for name in _blob_names(rows) if name not in blobs]
    if missing:
        raise SnapshotError(
            f"the snapshot keeps a part of its state outside, and it was not given: '{missing[0]}'"
        )
    found: list[Row] = []
    for row in rows:
        if row[0] != Tag.BLOB:
            found.append(row)
        elif row[1] == Tag.ROWS:
            found.extend(_with_blobs(_page(blobs[row[2]]), blobs))
        else:
            found.append([row[1], blobs[row[2]].decode()])
    return found


def _frame(machine: PythonMachine, stored: StoredFrame, reader: Reader) -> Frame:
    code = machine.program.functions[stored.number] if stored.number >= 0 else None
    if code is None or not 0 <= stored.position < len(code.instructions):
        raise SnapshotError("the snapshot has stopped at an instruction that its program does not have")
    count = code.own + len(code.captured)
    variables = [*stored.variables, *[DEAD] * (count - len(stored.variables))]
    cells = [_cell(reader, written) for written in variables[:count]]
    cells.extend([machine.outside_cell(name) for name in code.variables[count:]])
    frame = Frame(stored.number, code, cells)
    frame.position = stored.position
    frame.stack = [reader.value(written) for written in stored.stack]
    frame.handled = [_handled(reader.value(written)) for written in stored.handled]
    return frame


def _cell(reader: Reader, written: Written) -> CellType:
    if written == DEAD:
        return CellType()
    if written[0] == CONTENT:
        return CellType(reader.value(written[1]))
    found = reader.value(written)
    if not isinstance(found, CellType):
        raise SnapshotError("the snapshot is damaged: a variable is not a variable")
    return found


def _handled(value: Any) -> BaseException | None:
    if value is None or isinstance(value, BaseException):
        return value
    raise SnapshotError("the snapshot is damaged: it handles what is not an exception")


def _timeout(value: Any) -> Timeout:
    if isinstance(value, Timeout):
        return value
    raise SnapshotError("the snapshot is damaged: a time limit is not one")


def _check(machine: PythonMachine) -> None:
    """Check the invariants that the machine relies on when it resumes."""
    is_resumable = machine.status in ("suspended", "paused")
    if is_resumable != bool(machine.frames):
        raise SnapshotError("the snapshot is damaged: only a machine that can continue has frames")
    if machine.status == "suspended":
        stack = machine.frames[-1].stack
        if not stack or not isinstance(stack[-1], Promise | Group | Settled):
            raise SnapshotError("the snapshot is damaged: it waits for nothing")
        machine.pending = stack[-1]
