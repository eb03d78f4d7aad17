"""The format of a machine's state: ``[format, program, checksum, state]`` as JSON."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Literal
from zlib import crc32

import msgspec
from msgspec import Raw, Struct

from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.lang.values.kinds import Vacant, Value

FORMAT = 1
STATUSES: tuple[Literal["suspended", "paused", "completed", "failed"], ...] = (
    "suspended",
    "paused",
    "completed",
    "failed",
)


class State(Struct, array_like=True, gc=False):
    """The content of a snapshot. Add fields at the end, with a default."""

    status: int
    made: int
    execution: str
    frames: list[list[Any]]
    """For a function: its number, position, argument count, operand stack, variables in scope, captured cells.

    For a library function that calls back: its name and its state.
    """
    globals: dict[str, Any]
    heap: list[list[Any]]
    values: list[Raw]
    effects: list[list[Any]] = []
    logs: list[tuple[str, str]] = []
    result: Any = None
    error: Any = None
    meter: tuple[int, int, int] | None = None
    """The remaining limits of a machine that is paused in the middle of a resume."""
    tracebacks: dict[str, str] = {}
    """Tracebacks of errors by `traceback_key`: apart from the errors' marks, which earlier releases read."""


_encode = msgspec.json.Encoder().encode
_envelope = msgspec.json.Decoder(tuple[int, str, int, Raw])
_state = msgspec.json.Decoder(State)
_value = msgspec.json.Decoder().decode


def traceback_key(error: ErrorValue) -> str:
    """Return the key of an error's traceback: errors of one kind, message and place share it."""
    return sha256(_encode([error.code, error.message, error.stack])).hexdigest()[:16]


def write(program: str, state: State) -> bytes:
    """Return the snapshot of a machine that runs the program with this fingerprint."""
    try:
        data = _encode(state)
    except (UnicodeEncodeError, ValueError) as problem:
        raise SnapshotError(f"a value that came from outside cannot be stored: {problem}") from None
    return b'[%d,"%b",%d,%b]' % (FORMAT, program.encode(), crc32(data), data)


def read(program: str, data: bytes) -> State:
    """Read a snapshot.

    Raise `SnapshotError` unless it is undamaged, of that program, and in a format this version knows.
    """
    try:
        version, of, checksum, raw = _envelope.decode(data)
        if version != FORMAT:
            raise SnapshotError(f"the snapshot has format {version}; this version knows {FORMAT}")
        if of != program:
            raise SnapshotError(f"the snapshot belongs to the compiled program {of}, not to {program}")
        if crc32(raw) != checksum:
            raise SnapshotError("the snapshot is damaged: its checksum does not fit")
        return _state.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeError, TypeError) as problem:
        raise SnapshotError(f"the snapshot cannot be read: {problem}") from None


def decoded(vacancy: Vacant) -> Value:
    """Return the value if its JSON is available, always the same object; else the vacancy itself."""
    if vacancy.value is vacancy and vacancy.data is not None:
        vacancy.value = _value(vacancy.data)
    return vacancy.value
