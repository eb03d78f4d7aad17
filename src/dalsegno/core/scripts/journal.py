"""The journal of a machine: what is kept of each turn, so that another execution can start from it.

An entry holds the machine after a turn, and everything that a first turn of another execution needs beside it: the same
that a failure keeps (`dalsegno.core.scripts.kept`). It is derived from the entry before and from the turn's own commit.

Entries are stored in chunks of up to `PER_CHUNK`, which follow the numbers of the turns, so that every process writes
the same turn to the same place. Entries that are large are stored as their difference from the one before, or from a
key entry that several chunks share.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dalsegno.core.scripts.deltas import difference, restored
from dalsegno.core.scripts.kept import AskedTimer, KeptMachine
from dalsegno.core.scripts.token_bodies import AskedTask, TimerBody, decode_task, decode_timer, encode_body
from dalsegno.model.effect import Effect, SaveMachine, SettlePromise, SpawnToken
from dalsegno.model.machine import CancelReason, Completion, Ranges, SignalView, reaches

PER_CHUNK = 10
"""Turns per chunk."""
LARGE = 32 * 1024
"""Bytes from which on an entry is stored as a difference: zlib finds only what it saw this many bytes before."""
KEY_CHUNKS = 8
"""Chunks that may share a key entry."""
FORMAT = 1


class CalledTask(Struct, frozen=True, array_like=True, gc=False):
    """A task that was called and had not ended; ``data`` is its token's."""

    promise: int
    node: str
    data: bytes
    token: str
    priority: int

    @classmethod
    def of(cls, task: AskedTask) -> CalledTask:
        return cls(task.promise, task.node, encode_body(task.body), task.token, task.priority)

    def asked(self) -> AskedTask:
        return AskedTask(self.promise, self.node, decode_task(self.data), self.token, self.priority)


class SetTimer(Struct, frozen=True, array_like=True, gc=False):
    promise: int
    data: bytes
    due: float

    @classmethod
    def of(cls, timer: AskedTimer) -> SetTimer:
        if timer.awaited is not None:
            return cls(timer.promise, encode_body(TimerBody(awaited=timer.awaited)), timer.due)
        return cls(timer.promise, encode_body(TimerBody(timer.promise, timer.signal)), timer.due)

    def asked(self) -> AskedTimer:
        body = decode_timer(self.data)
        return AskedTimer(self.promise, self.due, body.signal, body.awaited)


class Entry(Struct, frozen=True, array_like=True, gc=False):
    """A turn, and the machine after it."""

    turn: int
    at: float
    line: int
    awaits: str
    checkpoint: str
    cancel: CancelReason
    interrupted: bool
    snapshot: bytes
    """As it is stored: sealed, if it is one of a Python workflow."""
    reachable: Ranges
    known: tuple[Completion, ...]
    """What had completed and can still be reached."""
    arrived: tuple[Completion, ...]
    """What this turn received, whether or not it can still be reached."""
    tasks: tuple[CalledTask, ...]
    timers: tuple[SetTimer, ...]
    signals: tuple[SignalView, ...]
    """Those that had arrived, and were not taken."""
    definition: str = ""
    """The content hash of the program; empty: that of the execution."""


class Received(Struct, frozen=True, gc=False):
    """What the store had for a machine when it was loaded for a turn."""

    read: int
    completions: tuple[Completion, ...]
    signals: tuple[SignalView, ...]


class Turned(Struct, frozen=True, gc=False):
    """A turn that was committed, or is about to be: its entry is derived when it is written."""

    at: float
    awaits: str
    checkpoint: str
    cancel: CancelReason
    effects: tuple[Effect, ...]
    received: Received | None = None
    """None for a machine that was cached, and received one completion."""
    pending: tuple[CalledTask | SetTimer, ...] = ()
    """What was pending before, if that cannot be derived from the entry before."""
    blobs: frozenset[str] = frozenset()
    definition: str = ""


class Chunk(Struct, frozen=True, array_like=True, gc=False):
    """Entries as they are stored, oldest first."""

    format: int
    first: int
    last: int
    key: int
    """The turn of the key entry from which the first one differs; 0: none."""
    blobs: tuple[str, ...]
    """Blobs that belong to the snapshots."""
    data: bytes


class _Numbered(Struct, gc=False):
    promise: int | None = None


_decode_promise = msgspec.json.Decoder(_Numbered).decode
"""Reads the body of a task's token, which may be large, for its promise only."""
_encode = msgspec.msgpack.Encoder().encode
_decode_entry = msgspec.msgpack.Decoder(Entry).decode
_decode_chunk = msgspec.msgpack.Decoder(Chunk).decode
_decode_parts = msgspec.msgpack.Decoder(tuple[bytes, ...]).decode
_decode_key = msgspec.msgpack.Decoder(tuple[int, bytes]).decode
_WHOLE, _DIFFERENCE = b"w", b"d"


# -- entries ----------------------------------------------------------------------------------------------------


def entry_of(before: Entry | None, turned: Turned) -> Entry:
    """Return the entry of a turn. ``before``: that of the turn before, if it is known."""
    made = _Made(turned.effects)
    saved, received = made.saved, turned.received
    reachable = saved.reachable
    signals = received.signals if received is not None else before.signals if before is not None else ()
    arrived = _arrived(saved, received, signals)
    known = {each.promise: each for each in before.known} if before is not None and before.known else {}
    if received is not None:
        for each in received.completions:
            known[each.promise] = each
    for each in (*arrived, *made.settled):
        known.setdefault(each.promise, each)
    tasks, timers = list(made.tasks), list(made.timers)
    if before is not None:
        tasks[:0], timers[:0] = before.tasks, before.timers
    for pending in turned.pending:
        tasks.append(pending) if isinstance(pending, CalledTask) else timers.append(pending)
    taken = [each.signal for each in saved.taken]
    return Entry(
        saved.version + 1,
        turned.at,
        saved.line,
        turned.awaits,
        turned.checkpoint,
        turned.cancel,
        saved.interrupted,
        saved.snapshot,
        reachable,
        tuple([each for each in known.values() if reaches(reachable, each.promise)]),
        arrived,
        tuple([each for each in tasks if each.promise not in known and reaches(reachable, each.promise)]),
        tuple([each for each in timers if each.promise not in known and reaches(reachable, each.promise)]),
        tuple([each for each in signals if each.id not in taken]) if taken else signals,
        turned.definition,
    )


class _Made:
    """What the effects of a turn say: the machine, what it called, and what it settled itself."""

    __slots__ = ("saved", "settled", "tasks", "timers")

    def __init__(self, effects: Sequence[Effect]) -> None:
        self.tasks: list[CalledTask] = []
        self.timers: list[SetTimer] = []
        self.settled: list[Completion] = []
        """Calls that it cancelled, and what an earlier execution knew."""
        for effect in effects:
            if type(effect) is SaveMachine:
                self.saved = effect
            elif type(effect) is SpawnToken:
                token = effect.token
                if token.kind == "task":
                    promise = _decode_promise(token.data).promise
                    if promise is not None:
                        task = CalledTask(promise, token.node, token.data, token.id, token.priority)
                        self.tasks.append(task)
                elif token.kind == "timer":
                    self.timers.append(timer_of(token.data, token.due or 0.0))
            elif type(effect) is SettlePromise:
                number = self.saved.read + 2 + len(self.settled)
                self.settled.append(replace(effect.completion, number=number))


def _arrived(
    saved: SaveMachine, received: Received | None, signals: Sequence[SignalView]
) -> tuple[Completion, ...]:
    """Return what a turn received: the completion it brought along, what was unread, and the signals it took."""
    found: list[Completion] = []
    if received is not None:
        found = [each for each in received.completions if each.number > received.read]
    if saved.settled is not None:
        found.append(replace(saved.settled, number=saved.read + 1))
    if saved.taken:
        by_id = {signal.id: signal for signal in signals}
        for taken in saved.taken:
            if (signal := by_id.get(taken.signal)) is not None:
                found.append(Completion(taken.promise, True, signal.data, signal.place))
    return tuple(found)


def timer_of(data: bytes, due: float) -> SetTimer:
    body = decode_timer(data)
    return SetTimer(body.promise if body.awaited is None else body.awaited.promise, data, due)


def machine_of(entry: Entry, completions: Mapping[int, Completion]) -> KeptMachine:
    """Return what another execution starts from. ``completions``: of what was pending at the turn, what is known by
    now.
    """
    found = {each.promise: each for each in entry.known}
    for each in completions.values():
        found.setdefault(each.promise, each)
    ordered = sorted(found.values(), key=lambda each: each.number)
    return KeptMachine(
        entry.snapshot,
        "",
        False,
        "",
        tuple(ordered),
        tuple([each.asked() for each in entry.tasks if each.promise not in found]),
        tuple([each.asked() for each in entry.timers if each.promise not in found]),
        entry.signals,
        line=entry.line,
    )


# -- chunks -----------------------------------------------------------------------------------------------------


def chunk_number(turn: int) -> int:
    return (turn - 1) // PER_CHUNK


def ends_chunk(turn: int) -> bool:
    return turn % PER_CHUNK == 0


def encode_entry(entry: Entry) -> bytes:
    return _encode(entry)


def encode_chunk(
    entries: Sequence[tuple[int, bytes]], blobs: Iterable[str], key: tuple[int, bytes] | None
) -> bytes:
    """Return a chunk of encoded entries, which are given with their turns. ``key``: a key entry with its turn."""
    parts: list[bytes] = []
    before = key[1] if key is not None else None
    for _, data in entries:
        if before is not None and len(data) >= LARGE:
            parts.append(_DIFFERENCE + difference(before, data))
        else:
            parts.append(_WHOLE + data)
        before = data
    packed = zlib.compress(_encode(parts), 1)
    first, last = entries[0][0], entries[-1][0]
    number = key[0] if key is not None else 0
    return _encode(Chunk(FORMAT, first, last, number, tuple(sorted(blobs)), packed))


def read_chunk(stored: bytes) -> Chunk | None:
    """Return a chunk; None if it was removed, or is of a later release."""
    if not stored:
        return None
    try:
        chunk = _decode_chunk(stored)
    except msgspec.DecodeError:
        return None
    return chunk if chunk.format == FORMAT else None


def encoded_entries(chunk: Chunk, key: bytes | None) -> list[bytes]:
    """Return the encoded entries of a chunk, oldest first. Raises ValueError for one that is damaged."""
    found: list[bytes] = []
    before = key
    try:
        for part in _decode_parts(zlib.decompress(chunk.data)):
            if part[:1] == _DIFFERENCE:
                if before is None:
                    raise ValueError("the entry from which it differs is no longer kept")
                before = restored(before, part[1:])
            else:
                before = part[1:]
            found.append(before)
    except (zlib.error, msgspec.DecodeError) as error:
        raise ValueError(f"an entry of the journal is damaged: {error}") from None
    return found


def decode_entry(data: bytes) -> Entry:
    try:
        return _decode_entry(data)
    except msgspec.DecodeError as error:
        raise ValueError(f"an entry of the journal is damaged: {error}") from None


def pack_key(number: int, data: bytes) -> bytes:
    """Return a key entry as it is stored."""
    return zlib.compress(_encode((number, data)), 1)


def unpack_key(stored: bytes) -> tuple[int, bytes] | None:
    if not stored:
        return None
    try:
        return _decode_key(zlib.decompress(stored))
    except (zlib.error, msgspec.DecodeError):
        return None
