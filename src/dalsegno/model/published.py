"""What an execution shows while it runs: published values, and streams of chunks. The log is one of the streams."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct

PROGRESS = "progress"
"""The key under which ``progress()`` of a workflow publishes; tasks have ``progress/`` and their name."""
LOG = "log"
"""The name of the stream that holds the log lines of an execution."""

LONGEST_NAME = 200
"""Characters of a key, or of the name of a stream."""
LARGEST_VALUE = 64 * 1024
"""Bytes of a published value as JSON."""
MOST_KEYS = 1000
"""Published values of one execution."""
LARGEST_CHUNK = 64 * 1024
"""Bytes of a chunk as JSON."""
MOST_STREAMS = 100
"""Streams of one execution."""
LARGEST_STREAM = 16 * 1024 * 1024
"""Bytes of one stream."""
LARGEST_LOG = 4 * 1024 * 1024
"""Bytes of the log of one execution: further lines are only in the log of the process."""
LONGEST_LINE = 8000
"""Characters of a log line that are kept."""
LONGEST_TEXT = 1000
"""Characters of the text of a progress, which are kept; further ones are cut off."""


class PublishedValue(Struct, frozen=True, gc=False):
    """The newest value of a key. ``data`` is JSON; ``version`` grows with every write."""

    key: str
    data: bytes
    version: int
    at: float


class Mark(Struct, frozen=True):
    """Tells whether the published values of an execution have changed since it was read: then it is another one."""

    count: int = 0
    versions: int = 0
    times: float = 0.0


def mark_of(values: Iterable[PublishedValue]) -> Mark:
    found = list(values)
    return Mark(len(found), sum(each.version for each in found), math.fsum(each.at for each in found))


class ValueWrite(Struct, frozen=True, gc=False):
    """A value that a running task publishes. ``data`` is None: it is removed. ``passing``: it belongs to this run of
    the task, and does not outlive its execution.
    """

    execution: str
    token: str
    fence: int
    key: str
    data: bytes | None
    passing: bool = False


class ChunkWrite(Struct, frozen=True, gc=False):
    """Chunks that a running task appends to a stream. ``chunks`` are JSON values."""

    execution: str
    token: str
    fence: int
    attempt: int
    task: str
    stream: str
    chunks: tuple[bytes, ...]
    closes: bool = False


Refusal = Literal["", "lost", "keys", "streams", "full", "closed", "stored"]
"""Why a task's write was not made; empty: it was made. ``lost``: another run of the task holds its lease."""


class StreamView(Struct, frozen=True, gc=False):
    """``length``: how many chunks it has, which is the offset of the next one."""

    name: str
    length: int
    bytes: int
    closed: bool = False


class Usage(Struct, frozen=True):
    """What an execution has published: the bytes of each value by its key, and the streams by their names."""

    values: dict[str, int] = {}
    streams: dict[str, StreamView] = {}


class StreamPart(Struct, frozen=True, gc=False):
    """Chunks that were appended together. ``data`` is a JSON array. ``restarts``: the task has begun anew, and what
    its earlier runs wrote no longer counts.
    """

    first: int
    count: int
    at: float
    task: str
    attempt: int
    restarts: bool
    data: bytes


def check_name(name: Any, what: str) -> str:
    """Return the name of a key or stream; raise ValueError for one that stores cannot keep alike."""
    if not isinstance(name, str) or not name or len(name) > LONGEST_NAME:
        given = f"one of {len(name):,}" if isinstance(name, str) else type(name).__name__
        raise ValueError(f"the {what} must be a text of 1 to {LONGEST_NAME} characters, not {given}")
    if not name.isprintable():
        raise ValueError(f"the {what} {name!r:.100} holds characters that cannot be printed")
    return name


def check_key(key: Any) -> str:
    """Return a key that ``publish`` may write."""
    name = check_name(key, "key")
    if name == PROGRESS or name.startswith(f"{PROGRESS}/"):
        raise ValueError(f"the key '{name:.100}' belongs to progress(); choose another one")
    return name


def check_stream(name: Any) -> str:
    """Return the name of a stream that a workflow or task may write."""
    found = check_name(name, "stream's name")
    if "/" in found:
        raise ValueError(f"the stream's name '{found:.100}' must not contain '/': it is part of an address")
    if found == LOG:
        raise ValueError("the stream 'log' holds the lines of log(); choose another name")
    return found


def progress_value(done: Any, total: Any = None, text: Any = None) -> dict[str, Any]:
    """Return the value that a progress publishes; raise ValueError for numbers that show none."""
    for name, number in (("done", done), ("total", total)):
        if number is None and name == "total":
            continue
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not is_number or (isinstance(number, float) and not math.isfinite(number)):
            raise ValueError(f"{name} must be a finite number, not {_shown(number)}")
        if number < 0:
            raise ValueError(f"{name} must not be negative")
    if text is not None and not isinstance(text, str):
        raise ValueError(f"the text must be a text, not {type(text).__name__}")
    return {"done": done, "total": total, "text": text[:LONGEST_TEXT] if text else None}


def _shown(number: Any) -> str:
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    return f"{number}" if is_number else type(number).__name__


def progress_key(task: str, indexes: tuple[int, ...]) -> str:
    """Return the key of a task's progress: its calls and items have one each."""
    numbers = "".join(f"/{each}" for each in indexes)
    return f"{PROGRESS}/{task[: LONGEST_NAME - len(PROGRESS) - 1 - len(numbers)]}{numbers}"
