"""Packs a machine's state as plain JSON for a snapshot.

Most values are JSON already and stay unchanged. Others are written as ``{"$": …}``. A list there describes the value
(see `Mark`). A number refers to the *heap*, which holds everything with identity, or, if negative, to the *values*,
which hold each larger plain value once. An object of the program that itself has the key ``$`` is quoted, so data
cannot be mistaken for a mark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

from dalsegno.errors import LimitExceeded
from dalsegno.lang.flow.runtime.instructions import Iteration
from dalsegno.lang.flow.snapshot.format import STATUSES, State, traceback_key
from dalsegno.lang.runtime.effects import (
    AwaitSignal,
    Cancel,
    Checkpoint,
    Effect,
    ErrorValue,
    LeafKind,
    Publish,
    Reply,
    SetTags,
    StartTask,
    StartTimer,
    StartWorkflow,
    WriteStream,
)
from dalsegno.lang.runtime.frames import Frame
from dalsegno.lang.runtime.promises import Group, Promise, Settled
from dalsegno.lang.values.kinds import (
    UNSET,
    Builtin,
    Cell,
    Configured,
    FunctionValue,
    Vacant,
    Value,
    number_text,
)

if TYPE_CHECKING:
    from dalsegno.lang.flow.runtime.runner import Runner


NOT_PLAIN: Final = -1
MAX_DEPTH = 60
"""Values nested deeper are stored flat, so that Python's recursion limit does not matter."""
MANY = 2_000
"""Values with more containers than this are checked for shared parts."""

LONG = 32 * 1024
"""Texts of this length are stored once, however often a value refers to them."""

_ATOMS = frozenset({str, int, bool, type(None)})
_PLAIN = _ATOMS | {float, list, dict}
_PER_ITEM = 4
_UNBOUNDED = 2**60


def plain_size(value: Value, texts: set[int]) -> int:
    """Return the approximate size of a list or object as JSON, or `NOT_PLAIN`.

    A value is not plain if it holds anything without a JSON form, is very deep, or refers to the same parts so often
    that writing it out would multiply its size. ``texts`` are the identities of the long texts seen so far; those in
    this value are added.
    """
    items: Collection[Value] = value if type(value) is list else value.values()
    if _ATOMS.issuperset(map(type, items)):  # a flat record, the common case
        size = _own_size(value, items)
        return NOT_PLAIN if size > LONG and _repeats(items, texts) else size
    level = [value]
    size = depth = containers = 0
    checked = False
    while level:
        deeper: list[Value] = []
        for container in level:
            items = container if type(container) is list else container.values()
            kinds = set(map(type, items))
            if not kinds <= _ATOMS and not _may_stay(items, kinds, deeper):
                return NOT_PLAIN
            own = _own_size(container, items)
            if own > LONG and _repeats(items, texts):
                return NOT_PLAIN
            size += own
        level = deeper
        depth += 1
        containers += len(level)
        if depth > MAX_DEPTH or (containers > MANY and not (checked := checked or _is_tree(value))):
            return NOT_PLAIN
    return size


def _own_size(container: Value, items: Collection[Value]) -> int:
    """Return the size without the content of inner containers."""
    size = _PER_ITEM * len(container)
    for item in items:
        if type(item) is str:
            size += len(item)
    return size + sum(map(len, container)) if type(container) is dict else size


def _repeats(items: Collection[Value], texts: set[int]) -> bool:
    """Return whether a long text occurs twice among these and the recorded identities; record these."""
    found = [id(item) for item in items if type(item) is str and len(item) >= LONG]
    count = len(texts) + len(found)
    texts.update(found)
    return len(texts) < count


def _may_stay(items: Collection[Value], kinds: set[type], deeper: list[Value]) -> bool:
    """Return whether a value that is not an atom may be plain; containers are queued for inspection."""
    if not kinds <= _PLAIN:
        return False
    if list in kinds or dict in kinds:
        deeper.extend([item for item in items if type(item) is list or type(item) is dict])
    return float not in kinds or all(math.isfinite(item) for item in items if type(item) is float)


def _is_tree(value: Value) -> bool:
    """Return whether no container occurs in it twice.

    (A small repetition, if allowed, would grow with every snapshot.)
    """
    written: dict[int, int] = {}
    waiting: list[tuple[Value, list[Value] | None]] = [(value, None)]
    while waiting:
        container, inside = waiting.pop()
        if inside is not None:
            written[id(container)] = min(_UNBOUNDED, 1 + sum([written.get(id(item), 0) for item in inside]))
        elif id(container) not in written:
            items = container if type(container) is list else container.values()
            inside = [item for item in items if type(item) is list or type(item) is dict]
            waiting.append((container, inside))
            waiting.extend([(item, None) for item in inside])
    return written[id(value)] == len(written)


TAG = "$"
SMALL = 100
"""Plain values up to this size are written inline; the JSON of larger ones is kept."""
BLOB = 32 * 1024
"""Larger values are stored separately, if the driver offers a place for them."""

MOST_TRACEBACKS = 8
"""Tracebacks of errors that a snapshot keeps. They are for people, and a loop may collect any number of errors."""

KINDS: tuple[LeafKind, ...] = ("task", "workflow", "timer", "signal")

Packed: TypeAlias = Any
Put: TypeAlias = Callable[[bytes], str]
Kept: TypeAlias = "dict[int, tuple[Value, Raw | str]]"
"""By the identity of a value: the value itself, so that it is not changed in place, and its JSON or its blob's name."""

_AS_THEY_ARE = frozenset({str, int, bool, type(None)})
_encode = msgspec.json.Encoder().encode


class Mark(StrEnum):
    """The first item of the list that describes a value."""

    NUMBER = "n"
    PROMISE = "p"
    PROMISES = "r"
    ERROR = "e"
    BUILTIN = "b"
    CONFIGURED = "c"
    UNSET = "x"
    ITERATION = "i"
    INDEXES = "k"
    QUOTED = "q"
    SETTLED = "s"
    BLOB = "v"


class Entry(IntEnum):
    """The first item of an entry of the heap."""

    CELL = 1
    FUNCTION = 2
    GROUP = 3
    LIST = 4
    OBJECT = 5


class Packer(Struct, eq=False):
    """Packs the values of one machine. ``promises`` and ``signals`` are those it encountered."""

    put: Put | None
    before: Kept
    """What the snapshot before this one has kept."""
    most: int | None = None
    written: int = 0
    """Characters of plain values encoded for this snapshot, counted before the encoding."""
    kept: Kept = {}
    heap: list[Packed] = []
    values: list[Packed] = []
    references: dict[int, Packed] = {}
    texts: set[int] = set()
    open: list[tuple[int, Value]] = []
    promises: set[int] = set()
    signals: dict[int, Promise] = {}
    tracebacks: dict[str, str] = {}

    def value(self, value: Value, stays: bool = False) -> Packed:
        """Pack a value.

        ``stays``: the value belongs to a variable or a loop; it is not changed in place while it is shared.
        """
        kind = type(value)
        if kind in _AS_THEY_ARE:
            return value if kind is not str or len(value) <= BLOB else self.plain(value, stays)
        if kind is list or kind is dict:
            return self.container(value, stays)
        if kind is float:
            return value if math.isfinite(value) else {TAG: [Mark.NUMBER, number_text(value)]}
        pack = _PACK.get(kind)
        return {TAG: self.number(value)} if pack is None else pack(self, value)

    # plain values

    def container(self, value: Value, stays: bool) -> Packed:
        reference = self.references.get(id(value))
        if reference is not None:
            return reference
        if id(value) in self.before:
            return self.plain(value, stays)
        size = plain_size(value, self.texts)
        if size == NOT_PLAIN:
            return {TAG: self.number(value)}
        if size > SMALL:
            return self.plain(value, stays, size)
        return _quoted(value)

    def plain(self, value: Value, stays: bool, size: int = 0) -> Packed:
        """Pack a larger plain value separately, so that it is written once, and read only when used."""
        reference = self.references.get(id(value))
        if reference is None:
            reference = self.references[id(value)] = self.pack_separately(value, stays, size or len(value))
        return reference

    def pack_separately(self, value: Value, stays: bool, size: int) -> Packed:
        known = self.before.get(id(value))
        stored = known[1] if known is not None and self.fits(known[1]) else self.store(value, size)
        if stays:
            self.kept[id(value)] = (value, stored)
        return {TAG: [Mark.BLOB, stored]} if isinstance(stored, str) else self.add(stored)

    def store(self, value: Value, size: int) -> Raw | str:
        """Return the value's JSON, or its name if it was stored elsewhere."""
        self.written += size
        if self.most is not None and self.written > self.most:
            raise LimitExceeded(
                f"the state of the script would take more than {self.most:,} bytes to store; keep large data in "
                "tasks and pass references"
            )
        data = _encode(value)
        return self.put(data) if self.put is not None and len(data) > BLOB else Raw(data)

    def fits(self, stored: Raw | str) -> bool:
        """Return whether the form made for an earlier snapshot fits this one.

        Either large values are stored separately, or everything is inline.
        """
        if isinstance(stored, str):
            return self.put is not None
        return self.put is None or memoryview(stored).nbytes <= BLOB

    def add(self, data: Raw) -> Packed:
        self.values.append(data)
        return {TAG: -len(self.values)}

    def vacancy(self, vacancy: Vacant) -> Packed:
        """Pack a value that was not decoded since it was loaded, in its stored form."""
        if vacancy is UNSET:
            return {TAG: [Mark.UNSET]}
        if vacancy.value is not vacancy:
            return self.value(vacancy.value, stays=True)
        reference = self.references.get(id(vacancy))
        if reference is None:
            reference = {TAG: [Mark.BLOB, vacancy.blob]} if vacancy.blob else self.add(vacancy.data)
            self.references[id(vacancy)] = reference
        return reference

    def whole(self, value: Value) -> Packed:
        """Pack a value inline, however large."""
        if type(value) is str:
            return value
        if type(value) not in (list, dict) or plain_size(value, self.texts) == NOT_PLAIN:
            return self.value(value)
        return _quoted(value)

    # the heap

    def number(self, value: Value) -> int:
        """Return the heap number of something with identity, or of a container that is not plain.

        The entry is filled in later.
        """
        reference = self.references.get(id(value))
        if reference is None:
            reference = self.references[id(value)] = {TAG: len(self.heap)}
            self.open.append((len(self.heap), value))
            self.heap.append(None)
        number: int = reference[TAG]
        return number

    def finish(self) -> list[Packed]:
        """Return the complete heap."""
        while self.open:
            number, value = self.open.pop()
            self.heap[number] = _ENTRIES[type(value)](self, value)
        return self.heap

    # promises

    def items(self, items: Sequence[Value]) -> list[Packed]:
        """Pack items one by one; neighbouring promises that differ only in their number become one mark."""
        packed: list[Packed] = []
        run: list[Promise] = []
        for item in items:
            if run and not (type(item) is Promise and _continues(run[-1], item)):
                packed.append(self.run(run))
                run = []
            if type(item) is Promise:
                run.append(item)
            else:
                packed.append(self.value(item))
        if run:
            packed.append(self.run(run))
        return packed

    def run(self, promises: list[Promise]) -> Packed:
        first = promises[0]
        packed = self.promise(first)
        if len(promises) > 1:
            self.promises.update(range(first.number, first.number + len(promises)))
            if first.kind == "signal":
                self.signals.update({promise.number: promise for promise in promises})
            packed[TAG][:1] = [Mark.PROMISES, len(promises)]
        return packed

    def promise(self, promise: Promise) -> Packed:
        self.promises.add(promise.number)
        if promise.kind == "signal":
            self.signals[promise.number] = promise
        packed: list[Packed] = [Mark.PROMISE, promise.number, KINDS.index(promise.kind)]
        if promise.name is not None or promise.due is not None:
            packed.append(promise.name)
        if promise.due is not None:
            packed.append(promise.due)
        return {TAG: packed}

    def error(self, error: ErrorValue) -> Packed:
        if error.traceback is not None and len(self.tracebacks) < MOST_TRACEBACKS:
            self.tracebacks[traceback_key(error)] = error.traceback
        fields = [error.code, error.message, error.type, self.whole(error.data), error.stack, error.classes]
        attributes = [self.whole(error.attributes)] if error.attributes else []
        return {TAG: [Mark.ERROR, *fields, self.whole(list(error.args)), *attributes]}

    def iteration(self, iteration: Iteration) -> Packed:
        if type(iteration.items) is range:
            return {TAG: [Mark.INDEXES, len(iteration.items), iteration.index]}
        return {TAG: [Mark.ITERATION, self.value(iteration.items, stays=True), iteration.index]}


def _quoted(value: Value) -> Packed:
    return {TAG: [Mark.QUOTED, value]} if type(value) is dict and TAG in value else value


def _continues(last: Promise, next: Promise) -> bool:
    return (
        next.number == last.number + 1
        and next.kind == last.kind
        and next.name == last.name
        and next.due == last.due
    )


_PACK: dict[type, Callable[[Packer, Any], Packed]] = {
    Promise: Packer.promise,
    ErrorValue: Packer.error,
    Iteration: Packer.iteration,
    Vacant: Packer.vacancy,
    Builtin: lambda packer, builtin: {TAG: [Mark.BUILTIN, builtin.name]},
    Configured: lambda packer, chosen: {TAG: [Mark.CONFIGURED, chosen.namespace, chosen.options]},
    Settled: lambda packer, settled: {TAG: [Mark.SETTLED, packer.value(settled.value)]},
}

_ENTRIES: dict[type, Callable[[Packer, Any], Packed]] = {
    Cell: lambda packer, cell: [Entry.CELL, packer.value(cell.value, stays=True)],
    FunctionValue: lambda packer, function: [
        Entry.FUNCTION,
        function.code.number,
        [packer.number(cell) for cell in function.cells],
    ],
    Group: lambda packer, group: [
        Entry.GROUP,
        group.kind,
        packer.items(group.items),
        group.keys,
        group.shape,
        group.cancel,
    ],
    list: lambda packer, items: [Entry.LIST, packer.items(items)],
    dict: lambda packer, fields: [Entry.OBJECT, list(fields), packer.items(list(fields.values()))],
}


EFFECTS: dict[str, type[Any]] = {
    "task": StartTask,
    "workflow": StartWorkflow,
    "timer": StartTimer,
    "signal": AwaitSignal,
    "cancel": Cancel,
    "tags": SetTags,
    "reply": Reply,
    "checkpoint": Checkpoint,
    "publish": Publish,
    "stream": WriteStream,
}
_EFFECT_NAMES = {kind: name for name, kind in EFFECTS.items()}


def pack_machine(machine: Runner, packer: Packer) -> State:
    """Pack everything that the machine needs to continue; of one that has ended, only its outcome."""
    ended = machine.status in ("completed", "failed")
    frames = [] if ended else [_frame(machine, packer, frame) for frame in machine.frames]
    variables = (
        {} if ended else {name: packer.value(value, stays=True) for name, value in machine.globals.items()}
    )
    requests = machine.requests
    result = packer.whole(machine.result) if ended else None
    error = packer.value(machine.error) if ended else None
    return State(
        STATUSES.index(machine.status),
        requests.made,
        requests.execution,
        frames,
        variables,
        packer.finish(),
        packer.values,
        [_effect(effect) for effect in requests.effects] if requests.effects else [],
        requests.logs,
        result,
        error,
        _meter(machine) if machine.status == "paused" else None,
        packer.tracebacks,
    )


class _PromiseCollector(Packer, eq=False):
    """Packs a machine to find its promises; what it packs is not used."""

    found: list[Promise] = []

    def run(self, promises: list[Promise]) -> Packed:
        self.found.extend(promises)
        return super().run(promises)

    def value(self, value: Value, stays: bool = False) -> Packed:
        if type(value) is Promise:
            self.found.append(value)
        return super().value(value, stays)


def reachable_promises(machine: Runner) -> list[Promise]:
    """Return the promises that the script can still reach; one may be there several times."""
    collector = _PromiseCollector(None, {})
    pack_machine(machine, collector)
    return collector.found


def _meter(machine: Runner) -> tuple[int, int, int]:
    """Return the remaining limits.

    Instructions and library work were once counted separately, so there are two fields.
    """
    meter = machine.host.meter
    return meter.work_left, meter.limits.instructions, meter.bytes_left


def _frame(machine: Runner, packer: Packer, frame: Any) -> list[Packed]:
    if type(frame) is not Frame:
        return [frame.name, [packer.value(getattr(frame, field)) for field in frame.state]]
    slots = frame.slots
    live = machine.program.live_slots(frame.function, frame.position)
    return [
        frame.function.number,
        frame.position,
        frame.argument_count,
        [packer.value(value) for value in frame.stack],
        [packer.value(slots[slot], stays=True) for slot in live],
        [packer.number(cell) for cell in frame.cells] if frame.cells else [],
    ]


def _effect(effect: Effect) -> list[Any]:
    return [_EFFECT_NAMES[type(effect)], *[getattr(effect, field) for field in effect.__struct_fields__]]
