"""Restores a machine's state from bytes. Any damage raises `SnapshotError`.

The object table that `write` wrote is read as objects of this process, including aliases and cycles: see `Reader`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import CellType
from typing import TYPE_CHECKING, Any

import msgspec

from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.python.runtime.frames import Frame
from dalsegno.lang.python.snapshot.build import BUILDERS, SHELLS
from dalsegno.lang.python.snapshot.format import (
    CONTENT,
    DEAD,
    FORMAT,
    Row,
    StoredFrame,
    StoredMachine,
    Tag,
    Written,
    unsealed,
)
from dalsegno.lang.python.snapshot.object_table import Reader
from dalsegno.lang.python.timeouts import Timeout
from dalsegno.lang.runtime.effects import (
    AwaitSignal,
    Cancel,
    Checkpoint,
    Effect,
    Publish,
    Reply,
    SetTags,
    StartTask,
    StartTimer,
    StartWorkflow,
    WriteStream,
)
from dalsegno.lang.runtime.promises import Group, Promise, Settled

if TYPE_CHECKING:
    from dalsegno.lang.python.runtime.interpreter import Interpreter

MOST_BYTES = 256 * 1024 * 1024
_EFFECTS: dict[str, type[Effect]] = {
    kind.__name__: kind
    for kind in (
        StartTask,
        StartWorkflow,
        StartTimer,
        AwaitSignal,
        Cancel,
        SetTags,
        Publish,
        WriteStream,
        Reply,
        Checkpoint,
    )
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


def thaw(machine: Interpreter, data: bytes, blobs: Mapping[str, bytes]) -> None:
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


def _restore(machine: Interpreter, stored: StoredMachine, blobs: Mapping[str, bytes]) -> None:
    reader = Reader(
        machine.program, machine.outside_cell, with_blobs(stored.rows, blobs), stored.made, BUILDERS, SHELLS
    )
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


def with_blobs(rows: list[Row], blobs: Mapping[str, bytes]) -> list[Row]:
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
            found.extend(with_blobs(_page(blobs[row[2]]), blobs))
        else:
            found.append([row[1], blobs[row[2]].decode()])
    return found


def _frame(machine: Interpreter, stored: StoredFrame, reader: Reader) -> Frame:
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


def _check(machine: Interpreter) -> None:
    """Check the invariants that the machine relies on when it resumes."""
    is_resumable = machine.status in ("suspended", "paused")
    if is_resumable != bool(machine.frames):
        raise SnapshotError("the snapshot is damaged: only a machine that can continue has frames")
    if machine.status == "suspended":
        stack = machine.frames[-1].stack
        if not stack or not isinstance(stack[-1], Promise | Group | Settled):
            raise SnapshotError("the snapshot is damaged: it waits for nothing")
        machine.pending = stack[-1]
