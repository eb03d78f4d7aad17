"""Storable iterators of `itertools`, written in Python: they resume where a stored one stopped.

Python's own iterators cannot be stored by themselves: part of their position is hidden, and the newest releases no
longer expose it. Signatures, results and errors are those of `itertools`. All state is in slots: no code runs while an
iterator is rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

_END: Any = object()


class StoredIterator:
    """An iterator whose complete state is in its slots."""

    __slots__: ClassVar[tuple[str, ...]] = ()

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        raise StopIteration


class Count(StoredIterator):
    __slots__ = ("step", "value")

    def __init__(self, start: Any = 0, step: Any = 1) -> None:
        self.value, self.step = start, step

    def __next__(self) -> Any:
        value = self.value
        self.value = value + self.step
        return value

    def __repr__(self) -> str:
        return f"count({self.value!r})" if self.step == 1 else f"count({self.value!r}, {self.step!r})"


class Cycle(StoredIterator):
    __slots__ = ("place", "saved", "source")

    def __init__(self, iterable: Iterable[Any], /) -> None:
        self.source: Iterator[Any] | None = iter(iterable)
        self.saved: list[Any] = []
        self.place = 0

    def __next__(self) -> Any:
        if self.source is not None:
            item = next(self.source, _END)
            if item is not _END:
                self.saved.append(item)
                return item
            self.source = None
        if not self.saved:
            raise StopIteration
        item = self.saved[self.place]
        self.place = (self.place + 1) % len(self.saved)
        return item


class Repeat(StoredIterator):
    __slots__ = ("left", "value")

    def __init__(self, object: Any, times: int | None = None) -> None:
        self.value = object
        self.left = None if times is None else max(times, 0)

    def __next__(self) -> Any:
        if self.left is not None:
            if not self.left:
                raise StopIteration
            self.left -= 1
        return self.value

    def __length_hint__(self) -> int:
        if self.left is None:
            raise TypeError("len() of unsized object")
        return self.left


class Chain(StoredIterator):
    __slots__ = ("inner", "outer")

    def __init__(self, *iterables: Iterable[Any]) -> None:
        self.outer: Iterator[Any] | None = iter(iterables)
        self.inner: Iterator[Any] | None = None

    @classmethod
    def from_iterable(cls, iterable: Iterable[Iterable[Any]], /) -> Chain:
        made = cls()
        made.outer = iter(iterable)
        return made

    def __next__(self) -> Any:
        while self.outer is not None:
            if self.inner is None:
                following = next(self.outer, _END)
                if following is _END:
                    self.outer = None
                    break
                self.inner = iter(following)
            item = next(self.inner, _END)
            if item is not _END:
                return item
            self.inner = None
        raise StopIteration


class Islice(StoredIterator):
    __slots__ = ("following", "source", "step", "stop", "taken")

    def __init__(self, iterable: Iterable[Any], *bounds: Any) -> None:
        """Create an `islice`; the bounds are checked like those of a slice."""
        span = slice(*bounds)
        for name, least in (("start", 0), ("stop", 0), ("step", 1)):
            value = getattr(span, name)
            if value is not None and (not isinstance(value, int) or value < least):
                raise ValueError(
                    "Step for islice() must be a positive integer or None."
                    if name == "step"
                    else "Indices for islice() must be None or an integer: 0 <= x <= sys.maxsize."
                )
        self.source: Iterator[Any] | None = iter(iterable)
        self.following = span.start or 0
        self.stop, self.step, self.taken = span.stop, span.step or 1, 0

    def __next__(self) -> Any:
        while self.source is not None and self.taken < self.following:
            self._take()
        if self.source is None or (self.stop is not None and self.taken >= self.stop):
            self.source = None
            raise StopIteration
        item = self._take()
        self.following += self.step
        if self.stop is not None:
            self.following = min(self.following, self.stop)
        return item

    def _take(self) -> Any:
        item = next(self.source, _END) if self.source is not None else _END
        if item is _END:
            self.source = None
            raise StopIteration
        self.taken += 1
        return item


class Accumulate(StoredIterator):
    __slots__ = ("begun", "function", "initial", "source", "total")

    def __init__(self, iterable: Iterable[Any], func: Any = None, *, initial: Any = None) -> None:
        self.source = iter(iterable)
        self.function = func
        self.initial, self.total, self.begun = initial, None, False

    def __next__(self) -> Any:
        if self.initial is not None:
            self.total, self.initial, self.begun = self.initial, None, True
            return self.total
        item = next(self.source)
        if not self.begun:
            self.total, self.begun = item, True
        else:
            self.total = self.total + item if self.function is None else self.function(self.total, item)
        return self.total


class ZipLongest(StoredIterator):
    __slots__ = ("fill", "sources")

    def __init__(self, *iterables: Iterable[Any], fillvalue: Any = None) -> None:
        self.sources: list[Iterator[Any] | None] = [iter(each) for each in iterables]
        self.fill = fillvalue

    def __next__(self) -> Any:
        found: list[Any] = []
        for number, source in enumerate(self.sources):
            item = _END if source is None else next(source, _END)
            if item is _END:
                self.sources[number] = None
                if all(each is None for each in self.sources):
                    raise StopIteration
                item = self.fill
            found.append(item)
        if not found:
            raise StopIteration
        return tuple(found)


class Choices(StoredIterator):
    """An iterator whose results are given by indices into pools."""

    __slots__ = ("cycles", "done", "indices", "length", "pools")

    def _begin(self, pools: tuple[tuple[Any, ...], ...], length: int, *, done: bool = False) -> None:
        self.pools, self.length, self.done = pools, length, done
        self.indices: list[int] | None = None
        """None before the first result."""
        self.cycles: list[int] = []

    def __next__(self) -> Any:
        if self.done:
            raise StopIteration
        if self.indices is None:
            self.indices = self._first()
        elif not self._advance(self.indices):
            self.done = True
            raise StopIteration
        return self._result(self.indices)

    def _first(self) -> list[int]:
        return list(range(self.length))

    def _advance(self, indices: list[int]) -> bool:
        """Advance to the next indices; return False after the last ones."""
        raise NotImplementedError

    def _result(self, indices: list[int]) -> tuple[Any, ...]:
        [pool] = self.pools
        return tuple(pool[index] for index in indices[: self.length])


def _checked(length: Any) -> int:
    if not isinstance(length, int):
        raise TypeError("Expected int as r")
    if length < 0:
        raise ValueError("r must be non-negative")
    return length


class Product(Choices):
    __slots__ = ()

    def __init__(self, *iterables: Iterable[Any], repeat: int = 1) -> None:
        if repeat < 0:
            raise ValueError("repeat argument cannot be negative")
        pools = tuple(tuple(each) for each in iterables) * repeat
        self._begin(pools, len(pools), done=not all(pools))

    def _first(self) -> list[int]:
        return [0] * self.length

    def _advance(self, indices: list[int]) -> bool:
        for place in reversed(range(self.length)):
            indices[place] += 1
            if indices[place] < len(self.pools[place]):
                return True
            indices[place] = 0
        return False

    def _result(self, indices: list[int]) -> tuple[Any, ...]:
        return tuple(pool[index] for pool, index in zip(self.pools, indices, strict=True))


class Permutations(Choices):
    __slots__ = ()

    def __init__(self, iterable: Iterable[Any], r: int | None = None) -> None:
        pool = tuple(iterable)
        length = len(pool) if r is None else _checked(r)
        self._begin((pool,), length, done=length > len(pool))

    def _first(self) -> list[int]:
        size = len(self.pools[0])
        self.cycles = list(range(size, size - self.length, -1))
        return list(range(size))

    def _advance(self, indices: list[int]) -> bool:
        size = len(indices)
        for place in reversed(range(self.length)):
            self.cycles[place] -= 1
            if self.cycles[place]:
                other = size - self.cycles[place]
                indices[place], indices[other] = indices[other], indices[place]
                return True
            indices[place:] = [*indices[place + 1 :], indices[place]]
            self.cycles[place] = size - place
        return False


class Combinations(Choices):
    __slots__ = ()

    def __init__(self, iterable: Iterable[Any], r: int) -> None:
        pool = tuple(iterable)
        self._begin((pool,), _checked(r), done=r > len(pool))

    def _advance(self, indices: list[int]) -> bool:
        size = len(self.pools[0])
        for place in reversed(range(self.length)):
            if indices[place] != place + size - self.length:
                start = indices[place] + 1
                indices[place:] = range(start, start + self.length - place)
                return True
        return False


class CombinationsWithReplacement(Choices):
    __slots__ = ()

    def __init__(self, iterable: Iterable[Any], r: int) -> None:
        pool = tuple(iterable)
        self._begin((pool,), _checked(r), done=not pool and r > 0)

    def _first(self) -> list[int]:
        return [0] * self.length

    def _advance(self, indices: list[int]) -> bool:
        size = len(self.pools[0])
        for place in reversed(range(self.length)):
            if indices[place] != size - 1:
                indices[place:] = [indices[place] + 1] * (self.length - place)
                return True
        return False


class Pairwise(StoredIterator):
    __slots__ = ("begun", "old", "source")

    def __init__(self, iterable: Iterable[Any], /) -> None:
        self.source: Iterator[Any] | None = iter(iterable)
        self.old, self.begun = None, False

    def __next__(self) -> Any:
        while self.source is not None:
            item = next(self.source, _END)
            if item is _END:
                self.source = None
                break
            old, self.old = self.old, item
            if self.begun:
                return (old, item)
            self.begun = True
        raise StopIteration


class Batched(StoredIterator):
    __slots__ = ("size", "source", "strict")

    def __init__(self, iterable: Iterable[Any], n: int, *, strict: bool = False) -> None:
        if n < 1:
            raise ValueError("n must be at least one")
        self.source, self.size, self.strict = iter(iterable), n, strict

    def __next__(self) -> Any:
        found: list[Any] = []
        while len(found) < self.size and (item := next(self.source, _END)) is not _END:
            found.append(item)
        if not found:
            raise StopIteration
        if self.strict and len(found) < self.size:
            raise ValueError("batched(): incomplete batch")
        return tuple(found)


class TakeWhile(StoredIterator):
    __slots__ = ("done", "predicate", "source")

    def __init__(self, predicate: Callable[[Any], Any], iterable: Iterable[Any], /) -> None:
        self.predicate, self.source, self.done = predicate, iter(iterable), False

    def __next__(self) -> Any:
        if not self.done:
            item = next(self.source)
            if self.predicate(item):
                return item
            self.done = True
        raise StopIteration


class DropWhile(StoredIterator):
    __slots__ = ("begun", "predicate", "source")

    def __init__(self, predicate: Callable[[Any], Any], iterable: Iterable[Any], /) -> None:
        self.predicate, self.source, self.begun = predicate, iter(iterable), False

    def __next__(self) -> Any:
        item = next(self.source)
        while not self.begun:
            if self.predicate(item):
                item = next(self.source)
            else:
                self.begun = True
        return item


class Filter(StoredIterator):
    __slots__ = ("predicate", "source", "wanted")

    def __init__(self, predicate: Any, iterable: Iterable[Any], /) -> None:
        self.predicate, self.source, self.wanted = predicate, iter(iterable), True

    def __next__(self) -> Any:
        while True:
            item = next(self.source)
            found = item if self.predicate is None else self.predicate(item)
            if bool(found) is self.wanted:
                return item


class FilterFalse(Filter):
    __slots__ = ()

    def __init__(self, predicate: Any, iterable: Iterable[Any], /) -> None:
        super().__init__(predicate, iterable)
        self.wanted = False


class StarMap(StoredIterator):
    __slots__ = ("function", "source")

    def __init__(self, function: Callable[..., Any], iterable: Iterable[Any], /) -> None:
        self.function, self.source = function, iter(iterable)

    def __next__(self) -> Any:
        return self.function(*next(self.source))


class Compress(StoredIterator):
    __slots__ = ("data", "selectors")

    def __init__(self, data: Iterable[Any], selectors: Iterable[Any]) -> None:
        self.data, self.selectors = iter(data), iter(selectors)

    def __next__(self) -> Any:
        while True:
            item = next(self.data)
            if next(self.selectors):
                return item


class GroupBy(StoredIterator):
    __slots__ = ("current", "has_current", "has_target", "item", "key", "number", "source", "target")

    def __init__(self, iterable: Iterable[Any], key: Any = None) -> None:
        self.source, self.key = iter(iterable), key
        self.has_target = self.has_current = False
        self.target = self.current = self.item = None
        self.number = 0
        """The number of the group that may be read."""

    def step(self) -> None:
        self.item = next(self.source)
        self.current = self.item if self.key is None else self.key(self.item)
        self.has_current = True

    def __next__(self) -> Any:
        self.number += 1
        while not self.has_current or (self.has_target and self.target == self.current):
            self.step()
        self.target, self.has_target = self.current, True
        return self.current, Grouper(self, self.target, self.number)


class Grouper(StoredIterator):
    __slots__ = ("number", "parent", "target")

    def __init__(self, parent: GroupBy, target: Any, number: int) -> None:
        self.parent, self.target, self.number = parent, target, number

    def __next__(self) -> Any:
        parent = self.parent
        if parent.number != self.number:
            raise StopIteration
        if not parent.has_current:
            parent.step()
        if self.target != parent.current:
            raise StopIteration
        item, parent.item, parent.current, parent.has_current = parent.item, None, None, False
        return item


class TeeData:
    """Items that one of several iterators has read already, and the source of further items."""

    __slots__ = ("following", "source", "values")
    SIZE = 57

    def __init__(self, source: Iterator[Any]) -> None:
        self.source = source
        self.values: list[Any] = []
        self.following: TeeData | None = None


class Tee(StoredIterator):
    __slots__ = ("data", "place")

    def __init__(self, data: TeeData, place: int) -> None:
        self.data, self.place = data, place

    def __next__(self) -> Any:
        if self.place == TeeData.SIZE:
            if self.data.following is None:
                self.data.following = TeeData(self.data.source)
            self.data, self.place = self.data.following, 0
        if self.place == len(self.data.values):
            self.data.values.append(next(self.data.source))
        self.place += 1
        return self.data.values[self.place - 1]

    def __copy__(self) -> Tee:
        return Tee(self.data, self.place)


def tee(iterable: Iterable[Any], n: int = 2, /) -> tuple[Tee, ...]:
    if n < 0:
        raise ValueError("n must be >= 0")
    source = iter(iterable)
    first = source if isinstance(source, Tee) else Tee(TeeData(source), 0)
    return tuple(Tee(first.data, first.place) for _ in range(n))
