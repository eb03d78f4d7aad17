"""Classifies values before they are stored: whether they are plain JSON throughout, and their approximate size."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

from dalsegno.lang.values.kinds import Value

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
