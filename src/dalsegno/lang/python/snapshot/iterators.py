"""Storable iterators over lists, tuples, texts, ranges, sets, dicts and their combinations.

Python describes most of its own iterators (``__reduce__``). Dicts and sets need more: an iterator over a dict is a
position in its order; the order of a set differs between processes, so its remaining items are stored.
"""

from __future__ import annotations

import collections
import gc
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Literal, TypeAlias

from dalsegno.lang.python.runtime.itertools_classes import StoredIterator

View: TypeAlias = Literal["keys", "values", "items"]

_SAMPLES: tuple[Iterator[Any], ...] = (
    iter([]),
    iter(()),
    iter("a"),
    iter("ä"),
    iter(b""),
    iter(bytearray()),
    iter(range(1)),
    iter(range(1 << 70)),
)
REDUCIBLE: frozenset[type] = frozenset(
    (*map(type, _SAMPLES), type(reversed([])), type(reversed(())), enumerate, zip, map, filter)
)
"""Iterators whose ``__reduce__`` gives the complete state."""

MAKERS = {
    "iter": iter,
    "enumerate": enumerate,
    "zip": zip,
    "reversed": reversed,
    "map": map,
    "filter": filter,
}
"""The functions that create them again, by name."""

DICT_ITERATORS: dict[type, View] = {
    type(iter({}.keys())): "keys",
    type(iter({}.values())): "values",
    type(iter({}.items())): "items",
}
REVERSED_DICT_ITERATORS: frozenset[type] = frozenset(
    (
        type(reversed({})),
        type(reversed({}.values())),
        type(reversed({}.items())),
        type(iter(collections.OrderedDict())),
    )
)
"""Reversed iterators over dicts, and iterators over ordered dicts.

They describe themselves by their remaining items.
"""
SET_ITERATOR: type = type(iter(set()))

DICT_VIEWS: dict[type, View] = {
    type({}.keys()): "keys",
    type({}.values()): "values",
    type({}.items()): "items",
}

CHANGED = -1
"""Stands for the size of a dict or set that changed during iteration: no size equals it."""


class DictIterator:
    """Iterates over a dict after its first ``used`` entries, while the dict keeps its size."""

    __slots__ = ("_native", "mapping", "size", "used", "view")

    def __init__(self, mapping: dict[Any, Any], view: View, used: int, size: int) -> None:
        self.mapping = mapping
        self.view = view
        self.used = used
        self.size = size
        self._native: Iterator[Any] | None = None

    def __iter__(self) -> DictIterator:
        return self

    def __next__(self) -> Any:
        if len(self.mapping) != self.size:
            raise RuntimeError("dictionary changed size during iteration")
        if self._native is None:
            self._native = islice(iter(getattr(self.mapping, self.view)()), self.used, None)
        item = next(self._native)
        self.used += 1
        return item


class SetIterator:
    """The remaining items of an iteration over a set, while the set keeps its size."""

    __slots__ = ("owner", "remaining", "size")

    def __init__(self, owner: set[Any] | frozenset[Any], remaining: list[Any], size: int) -> None:
        self.owner = owner
        self.remaining = remaining
        """In reverse order."""
        self.size = size

    def __iter__(self) -> SetIterator:
        return self

    def __next__(self) -> Any:
        if not self.remaining:
            raise StopIteration
        if len(self.owner) != self.size:
            raise RuntimeError("Set changed size during iteration")
        return self.remaining.pop()


class Enumerate(StoredIterator):
    __slots__ = ("place", "source")
    place: int
    source: Iterator[Any]

    def __next__(self) -> Any:
        item = next(self.source)
        self.place += 1
        return self.place - 1, item


class Zip(StoredIterator):
    __slots__ = ("sources", "strict")
    sources: tuple[Iterator[Any], ...]
    strict: bool

    def __next__(self) -> Any:
        found = []
        for number, source in enumerate(self.sources):
            item = next(source, _END)
            if item is _END:
                self._check(number)
                raise StopIteration
            found.append(item)
        if not found:
            raise StopIteration
        return tuple(found)

    def _check(self, ended: int) -> None:
        if not self.strict:
            return
        if ended:
            raise ValueError(f"zip() argument {ended + 1} is shorter than argument{_before(ended)}")
        for number, source in enumerate(self.sources[1:], 1):
            if next(source, _END) is not _END:
                raise ValueError(f"zip() argument {number + 1} is longer than argument{_before(number)}")


def _before(number: int) -> str:
    return " 1" if number == 1 else f"s 1-{number}"


class Map(StoredIterator):
    __slots__ = ("function", "sources")
    function: Callable[..., Any]
    sources: tuple[Iterator[Any], ...]

    def __next__(self) -> Any:
        return self.function(*[next(source) for source in self.sources])


class SequenceIterator(StoredIterator):
    """Iterates over an object by index, because the object has no iterator of its own."""

    __slots__ = ("place", "sequence")
    place: int
    sequence: Any

    def __next__(self) -> Any:
        if self.sequence is None:
            raise StopIteration
        try:
            item = self.sequence[self.place]
        except (IndexError, StopIteration):
            self.sequence = None
            raise StopIteration from None
        self.place += 1
        return item


class CallIterator(StoredIterator):
    """``iter(function, sentinel)``."""

    __slots__ = ("function", "sentinel")
    function: Callable[[], Any] | None
    sentinel: Any

    def __next__(self) -> Any:
        item = self.sentinel if self.function is None else self.function()
        if item == self.sentinel:
            self.function = None
            raise StopIteration
        return item


class DequeIterator(StoredIterator):
    __slots__ = ("owner", "place", "reverse", "size")
    owner: collections.deque[Any]
    place: int
    reverse: bool
    size: int

    def __next__(self) -> Any:
        if len(self.owner) != self.size:
            raise RuntimeError("deque mutated during iteration")
        if self.place >= self.size:
            raise StopIteration
        self.place += 1
        return self.owner[-self.place if self.reverse else self.place - 1]


_END: Any = object()


ITERABLE: tuple[type, ...] = (
    list,
    tuple,
    str,
    bytes,
    bytearray,
    range,
    dict,
    set,
    frozenset,
    *REDUCIBLE,
    *DICT_VIEWS,
    DictIterator,
    SetIterator,
    StoredIterator,
    collections.deque,
)
"""Sources that a stored iterator may have."""


def of_dict_iterator(iterator: Any) -> DictIterator | None:
    """Return the dict and position of an iterator; None if it is exhausted."""
    owners = [each for each in gc.get_referents(iterator) if isinstance(each, dict)]
    if not owners:
        return None
    [mapping] = owners
    left = iterator.__length_hint__()
    size = len(mapping)
    if not left and _has_changed(iterator):
        size = CHANGED
    return DictIterator(mapping, DICT_ITERATORS[type(iterator)], len(mapping) - left, size)


def dict_of(view: Any) -> dict[Any, Any]:
    [mapping] = [each for each in gc.get_referents(view) if isinstance(each, dict)]
    return mapping


def of_set_iterator(iterator: Any) -> SetIterator | None:
    owners = [each for each in gc.get_referents(iterator) if isinstance(each, set | frozenset)]
    if not owners:
        return None
    [owner] = owners
    if _has_changed(iterator):
        return SetIterator(owner, [None], CHANGED)
    return SetIterator(owner, remaining(iterator)[::-1], len(owner))


def remaining(iterator: Any) -> list[Any]:
    """Return the remaining items of an iterator that describes itself by them, without consuming it."""
    items: list[Any] = list(iterator.__reduce__()[1][0])
    return items


def _has_changed(iterator: Any) -> bool:
    try:
        iterator.__reduce__()
    except RuntimeError:
        return True
    return False
