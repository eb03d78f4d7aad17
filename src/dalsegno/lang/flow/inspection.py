"""Looks at values before they are stored: is it plain JSON all through, and about how large?"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

from dalsegno.lang.values import Value

NOT_PLAIN: Final = -1
MAX_DEPTH = 60
"""Deeper values are stored flat, so that nobody's recursion limit matters."""
MANY = 2_000
"""Of values with more containers than this it is worth knowing whether they are as large as they look."""

LONG = 32 * 1024
"""Texts of this length are stored once, however often a value refers to them."""

_ATOMS = frozenset({str, int, bool, type(None)})
_PLAIN = _ATOMS | {float, list, dict}
_PER_ITEM = 4
_ENOUGH = 2**60


def plain_size(value: Value, texts: set[int]) -> int:
    """About how many characters a list or object is as JSON, or `NOT_PLAIN`: it holds what JSON has no word for, is
    very deep, or refers to the same parts so often that writing it out would multiply it. ``texts`` are the identities
    of long texts in what was looked at before; those in this value are added."""
    items: Collection[Value] = value if type(value) is list else value.values()
    if _ATOMS.issuperset(map(type, items)):  # a flat record, as most are
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
    """Without what the containers in it hold."""
    size = _PER_ITEM * len(container)
    for item in items:
        if type(item) is str:
            size += len(item)
    return size + sum(map(len, container)) if type(container) is dict else size


def _repeats(items: Collection[Value], texts: set[int]) -> bool:
    """Whether a long text occurs twice among these and those whose identities are noted; notes these."""
    found = [id(item) for item in items if type(item) is str and len(item) >= LONG]
    count = len(texts) + len(found)
    texts.update(found)
    return len(texts) < count


def _may_stay(items: Collection[Value], kinds: set[type], deeper: list[Value]) -> bool:
    """Whether what is not an atom is plain all the same; containers are left to look into."""
    if not kinds <= _PLAIN:
        return False
    if list in kinds or dict in kinds:
        deeper.extend([item for item in items if type(item) is list or type(item) is dict])
    return float not in kinds or all(math.isfinite(item) for item in items if type(item) is float)


def _is_tree(value: Value) -> bool:
    """Whether no container occurs in it twice. (A little repetition, allowed, would grow with every storing.)"""
    written: dict[int, int] = {}
    waiting: list[tuple[Value, list[Value] | None]] = [(value, None)]
    while waiting:
        container, inside = waiting.pop()
        if inside is not None:
            written[id(container)] = min(_ENOUGH, 1 + sum([written.get(id(item), 0) for item in inside]))
        elif id(container) not in written:
            items = container if type(container) is list else container.values()
            inside = [item for item in items if type(item) is list or type(item) is dict]
            waiting.append((container, inside))
            waiting.extend([(item, None) for item in inside])
    return written[id(value)] == len(written)
