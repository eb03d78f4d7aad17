"""The format of a stored machine. Tags and fields are permanent: a published snapshot must stay readable.

A *value* is written as JSON. None, booleans, small integers, finite floats and texts are themselves. ``[n]`` is row
``n``. ``[a, b, n]`` are the promises numbered ``a`` up to ``b`` (exclusive) that row ``n`` describes: a run of them
inside a list, tuple or group, a single one elsewhere.
A *row* is ``[tag, …]``; a list inside it is always a value. Rows are in the order in which they can be built: a row
refers to a later one only in a cycle.
The JSON is preceded by ``#`` and its checksum as eight hexadecimal digits. Snapshots of the first versions have none.
"""

from __future__ import annotations

from typing import Any, TypeAlias
from zlib import crc32

from msgspec import Struct

from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.runtime.effects import ErrorValue

FORMAT = 1

MOST_PROMISES = 1_000_000
"""Maximum number of promise handles in one snapshot; it bounds what a loader builds."""

SEAL = b"#"
SEAL_LENGTH = 9

Written: TypeAlias = Any
"""A value as JSON."""

Row: TypeAlias = list[Any]
"""Read by position: each turn of a Python workflow reads all rows of its snapshot, and each tag has
its own fields.
"""

DEAD = 0
"""Replaces a variable that is unbound or never read again."""

CONTENT = "="
"""``["=", value]``: the content of a variable that only its own frame holds."""


def sealed(data: bytes) -> bytes:
    """Prefix the JSON of a machine with its checksum."""
    return b"%b%08x%b" % (SEAL, crc32(data), data)


def unsealed(data: bytes) -> bytes:
    """Verify the checksum and return the JSON of a machine."""
    if data[:1] != SEAL:
        return data
    content = data[SEAL_LENGTH:]
    if data[1:SEAL_LENGTH] != b"%08x" % crc32(content):
        raise SnapshotError("the snapshot is damaged: its checksum does not fit")
    return content


class StoredFrame(Struct, frozen=True, array_like=True):
    number: int
    position: int
    stack: list[Written]
    variables: list[Written]
    """A cell (`[n]`), a content, or `DEAD`; trailing dead ones are omitted."""
    handled: list[Written]


class StoredMachine(Struct, frozen=True, omit_defaults=True):
    format: int
    program: str
    """The program's hash."""
    status: str
    made: int
    """The number of promises created so far."""
    line: int = 0
    execution: str = ""
    context: Any = None
    frames: list[StoredFrame] = []
    timeouts: list[Written] = []
    rows: list[Row] = []
    result: Any = None
    error: ErrorValue | None = None
    effects: list[Any] = []
    """Effects that the driver has not taken."""
    logs: list[tuple[str, str]] = []


FUNCTION_NAMES = frozenset(("__doc__", "__module__", "__name__", "__qualname__"))
"""Attributes that ``functools.wraps`` changes on a function."""


class Tag:
    """The kinds of rows."""

    BIG_INT = "i"
    SPECIAL_FLOAT = "f"
    BROKEN_TEXT = "u"
    LONG_TEXT = "L"
    CONSTANT = "E"
    COMPLEX = "c"
    BYTES = "b"
    BYTEARRAY = "a"
    LIST = "l"
    TUPLE = "t"
    DICT = "d"
    SET = "s"
    FROZENSET = "z"
    DECIMAL = "D"
    UUID = "U"
    FRACTION = "F"
    DATETIME = "dt"
    DATE = "da"
    TIME = "ti"
    TIMEDELTA = "td"
    TIMEZONE = "tz"
    ZONE = "zi"
    PATH = "P"
    PATTERN = "re"
    RANGE = "r"
    SLICE = "sl"
    DEFAULTDICT = "dd"
    ORDEREDDICT = "od"
    COUNTER = "ct"
    DEQUE = "dq"
    NAMESPACE = "ns"
    NAME = "n"
    DURABLE = "du"
    MODULE = "m"
    METHOD = "bm"
    PARTIAL = "pa"
    INSTANCE = "o"
    MODEL = "y"
    STRUCT = "ms"
    ENUM = "e"
    FLAG = "ev"
    NAMED_TUPLE = "nt"
    EXCEPTION = "x"
    CELL = "k"
    OUTSIDE = "oc"
    FUNCTION = "fn"
    NESTED = "nf"
    CALL = "nc"
    PROMISE = "pd"
    GROUP = "G"
    NAMED_GROUP = "GN"
    SETTLED = "ST"
    TIMEOUT = "T"
    ITERATOR = "it"
    DICT_ITERATOR = "di"
    DICT_VIEW = "dv"
    SET_ITERATOR = "si"
    SUPPRESS = "cm"
    STORED_ITERATOR = "is"
    CACHE = "lc"
    OBJECT = "ob"
    STATEFUL = "os"
    REDUCED = "or"
    REGISTERED = "rt"
    CLOSURE = "cl"
    MANAGER = "mf"
    ROWS = "R"
    BLOB = "B"
    """``["B", tag, name]``: a long text, long bytes, or many rows (``R``), stored outside of the snapshot."""
