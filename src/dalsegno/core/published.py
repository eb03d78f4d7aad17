"""The limits of what an execution publishes, for turns of workflows and for writes of running tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from dalsegno.errors import LimitExceeded
from dalsegno.model.effect import AppendChunks, PublishValues
from dalsegno.model.published import (
    LARGEST_CHUNK,
    LARGEST_LOG,
    LARGEST_STREAM,
    LARGEST_VALUE,
    LOG,
    LONGEST_LINE,
    MOST_KEYS,
    MOST_STREAMS,
    ChunkWrite,
    Refusal,
    StreamView,
    Usage,
    ValueWrite,
)

UNCOUNTED = 1024
"""Bytes up to which a value does not count towards the stored bytes of its execution: their number is limited."""
COUNTED_AT_ONCE = 64 * 1024
"""Streams count towards the stored bytes in steps of so many bytes, so that most writes count nothing."""


UNKEPT_LEVEL = "debug"
"""Lines of this level are only in the log of the process."""


def log_line(at: float, task: str, level: str, message: str) -> bytes:
    """Return a line of the execution's log as a chunk of its stream. ``task``: empty for the workflow itself."""
    cut = message if len(message) <= LONGEST_LINE else message[: LONGEST_LINE - 1] + "…"
    clean = cut.encode(errors="replace").decode()
    fields = {"at": at, "level": level, "task": task or None, "message": clean}
    return msgspec.json.encode(fields)


def newest(values: Iterable[tuple[str, bytes]]) -> PublishValues:
    """Return the publication of the last value of each key."""
    return PublishValues(tuple(dict(values).items()))


def refuse_large(name: str, data: bytes, *, is_chunk: bool = False) -> None:
    """Raise LimitExceeded for a value or chunk that is too large."""
    most = LARGEST_CHUNK if is_chunk else LARGEST_VALUE
    if len(data) > most:
        what = f"a chunk of the stream '{name}'" if is_chunk else f"the value published as '{name}'"
        raise LimitExceeded(
            f"{what} is {len(data):,} bytes of JSON; the limit is {most:,}. Keep large data in the result, or elsewhere"
            " and publish a reference"
        )


def check_turn(usage: Usage, values: PublishValues | None, appended: Sequence[AppendChunks]) -> int:
    """Return by how many bytes a turn raises the stored bytes; raise LimitExceeded for more than there may be."""
    size = 0
    if values is not None:
        given = dict(values.values)
        if len(given.keys() | usage.values.keys()) > MOST_KEYS:
            raise LimitExceeded(keys_full())
        size += sum(_counted(len(data)) - _counted(usage.values.get(key, 0)) for key, data in given.items())
    streams = dict(usage.streams)
    for each in appended:
        if each.stream == LOG:
            continue  # a full log takes no more, and fails nobody
        size += _check_stream(streams, each.stream, sum(map(len, each.chunks)))
        known = streams[each.stream]
        if each.closes:
            streams[each.stream] = StreamView(known.name, known.length, known.bytes, closed=True)
    return size


def _check_stream(streams: dict[str, StreamView], name: str, size: int) -> int:
    known = streams.get(name, StreamView(name, 0, 0))
    if name not in streams and _own(streams) >= MOST_STREAMS:
        raise LimitExceeded(streams_full())
    if known.closed and size:
        raise LimitExceeded(closed(name))
    if known.bytes + size > LARGEST_STREAM:
        raise LimitExceeded(stream_full(name))
    streams[name] = StreamView(name, known.length, known.bytes + size, known.closed)
    return counted_of_stream(known.bytes, size)


def counted_of_stream(before: int, size: int) -> int:
    """Return by how many bytes chunks raise the stored bytes."""
    return ((before + size) // COUNTED_AT_ONCE - before // COUNTED_AT_ONCE) * COUNTED_AT_ONCE


def _own(streams: Mapping[str, StreamView]) -> int:
    return len(streams) - (LOG in streams)


def _counted(size: int) -> int:
    return size if size > UNCOUNTED else 0


# -- writes of running tasks ---------------------------------------------------------------------------------

Fences = Mapping[tuple[str, str], int]
"""The fences of leased tokens, by execution and token."""


class KnownValue(Struct):
    """A stored value, without its data."""

    size: int
    version: int = 1
    token: str = ""
    fence: int = 0


class KnownStream(Struct):
    """A stored stream: how much it holds, and which run wrote last."""

    length: int = 0
    bytes: int = 0
    closed: bool = False
    token: str = ""
    fence: int = 0


class SettledValues(Struct):
    refusals: list[Refusal]
    saved: dict[tuple[str, str], tuple[ValueWrite, int]] = {}
    """The last write of each key, and the version that it makes."""
    removed: set[tuple[str, str]] = set()


class NewPart(Struct):
    write: ChunkWrite
    first: int
    restarts: bool


class SettledChunks(Struct):
    refusals: list[Refusal]
    changed: dict[tuple[str, str], KnownStream] = {}
    parts: list[NewPart] = []
    charges: dict[str, int] = {}
    """By how many bytes the stored bytes of executions grow."""


def settle_values(
    writes: Sequence[ValueWrite], fences: Fences, known: dict[tuple[str, str], KnownValue]
) -> SettledValues:
    """Decide which writes are made. ``known``: all values of the executions that are written to."""
    settled = SettledValues([])
    keys: dict[str, set[str]] = {}
    for execution, key in known:
        keys.setdefault(execution, set()).add(key)
    for write in writes:
        place, has = (write.execution, write.key), keys.setdefault(write.execution, set())
        before = known.get(place)
        refusal = _refuse_run(fences, write.execution, write.token, write.fence)
        if not refusal and write.data is not None and before is None and len(has) >= MOST_KEYS:
            refusal = "keys"
        settled.refusals.append(refusal)
        if refusal:
            continue
        if write.data is None:
            known.pop(place, None)
            settled.saved.pop(place, None)
            settled.removed.add(place)
            has.discard(write.key)
        else:
            version = before.version + 1 if before is not None else 1
            known[place] = KnownValue(len(write.data), version, write.token, write.fence)
            settled.saved[place] = write, version
            settled.removed.discard(place)
            has.add(write.key)
    return settled


def settle_chunks(
    writes: Sequence[ChunkWrite],
    fences: Fences,
    known: dict[tuple[str, str], KnownStream],
    stored: Mapping[str, int],
    most_stored: int | None,
) -> SettledChunks:
    """Decide which appends are made. ``known``: all streams of the executions that are written to; ``stored``: their
    stored bytes.
    """
    settled = SettledChunks([])
    for write in writes:
        place, size = (write.execution, write.stream), sum(map(len, write.chunks))
        stream = known.get(place)
        anew = stream is not None and begins_anew(stream, write.stream, write.token, write.fence)
        charge = counted_of_stream(stream.bytes if stream is not None else 0, size)
        if write.stream == LOG:
            charge = 0
        refusal = _refuse_run(fences, write.execution, write.token, write.fence)
        if not refusal:
            count = sum(of == write.execution and name != LOG for of, name in known)
            refusal = _judge_chunks(stream, write, size, anew=anew, streams=count)
        total = stored.get(write.execution, 0) + settled.charges.get(write.execution, 0) + charge
        if not refusal and charge and most_stored is not None and total > most_stored:
            refusal = "stored"
        settled.refusals.append(refusal)
        if refusal:
            continue
        if stream is None:
            stream = known[place] = KnownStream()
        if write.chunks:
            settled.parts.append(NewPart(write, stream.length, anew))
        stream.length += len(write.chunks)
        stream.bytes += size
        stream.closed = write.closes or (stream.closed and not anew)
        stream.token, stream.fence = write.token, write.fence
        settled.changed[place] = stream
        if charge:
            settled.charges[write.execution] = settled.charges.get(write.execution, 0) + charge
    return settled


def _refuse_run(fences: Fences, execution: str, token: str, fence: int) -> Refusal:
    return "" if fences.get((execution, token)) == fence else "lost"


def _judge_chunks(
    stream: KnownStream | None, write: ChunkWrite, size: int, *, anew: bool, streams: int
) -> Refusal:
    """``anew``: it is the first append of a later run, which may continue what the earlier run has closed."""
    if stream is None:
        return "streams" if write.stream != LOG and streams >= MOST_STREAMS else ""
    if stream.closed and write.chunks and not anew:
        return "closed"
    most = LARGEST_LOG if write.stream == LOG else LARGEST_STREAM
    return "full" if stream.bytes + size > most else ""


def begins_anew(stream: KnownStream, name: str, token: str, fence: int) -> bool:
    """Return True for the first append of a later run of the task that wrote last. Log lines stay valid."""
    return bool(token) and stream.token == token and stream.fence < fence and name != LOG


def accept_chunks(stream: KnownStream, change: AppendChunks) -> bool:
    """Append the chunks of a commit to the head of their stream; return False if it is full, and they are dropped."""
    size = sum(map(len, change.chunks))
    most = LARGEST_LOG if change.stream == LOG else LARGEST_STREAM
    if stream.bytes + size > most:
        return False
    stream.length += len(change.chunks)
    stream.bytes += size
    stream.closed = stream.closed or change.closes
    stream.token, stream.fence = change.token, change.fence
    return True


def array_of(chunks: Iterable[bytes]) -> bytes:
    """Return chunks as one JSON array."""
    return b"[%b]" % b",".join(chunks)


def refusal_text(refusal: Refusal, name: str) -> str:
    """Return the sentence for a task whose write was refused."""
    match refusal:
        case "keys":
            return keys_full()
        case "streams":
            return streams_full()
        case "full":
            return stream_full(name)
        case "closed":
            return closed(name)
        case "stored":
            return "the execution has stored as many bytes as the limit stored_bytes allows; keep the data elsewhere"
        case _:
            return f"'{name}' was not written: another run of this task has taken over"


def keys_full() -> str:
    return (
        f"an execution publishes at most {MOST_KEYS:,} keys; publish an object with several fields, or keep the data in"
        " the result"
    )


def streams_full() -> str:
    return f"an execution has at most {MOST_STREAMS} streams; write to fewer ones"


def stream_full(name: str) -> str:
    return (
        f"the stream '{name}' would hold more than {LARGEST_STREAM:,} bytes; start another stream, or keep the data"
        " elsewhere"
    )


def closed(name: str) -> str:
    return f"the stream '{name}' is closed; write before close(), or to another stream"
