"""Custom storage of types: those that a program registers, and those of the standard library that need it.

`register_type` is for objects that cannot cross an ``await`` otherwise. A registered type is found by its name in this
registry only: a snapshot can name only types that the running program has registered.

``functools.cache`` and ``lru_cache`` on functions of a workflow: the cached results are part of the snapshot.
"""

from __future__ import annotations

import functools
import gc
import importlib
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any, NamedTuple, TypeVar

from dalsegno.errors import UsageError
from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.python.environment import stored_name_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredType:
    kind: type
    name: str
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


_by_class: dict[type, StoredType] = {}
_by_name: dict[str, StoredType] = {}


def register_type(kind: type[T], dump: Callable[[T], Any], load: Callable[[Any], T]) -> None:
    """Store objects of exactly this class as the result of ``dump``, and rebuild them with ``load``.

    ``dump`` may return any storable value. Registering a class again replaces its functions.
    """
    given: Any = (kind, dump, load)
    if not isinstance(given[0], type):
        raise UsageError(f"register_type() takes a class, not {type(given[0]).__name__}")
    if not all(map(callable, given)):
        raise UsageError(f"register_type({kind.__name__}): give two functions, dump and load")
    found = StoredType(kind, f"{stored_name_of(kind.__module__)}.{kind.__qualname__}", dump, load)
    _by_class[kind] = _by_name[found.name] = found


def registered(kind: type) -> StoredType | None:
    found = _by_class.get(kind)
    if found is not None or kind.__module__ == "builtins":
        return found
    return _of_library(f"{kind.__module__}.{kind.__qualname__}", kind)


def load_registered(name: str, plain: Any) -> Any:
    found = _by_name.get(name) or _of_library(name)
    if found is None:
        raise SnapshotError(
            f"the stored workflow holds a '{name}', which this process has not registered: call register_type() for it "
            "where the workflow's module is imported"
        )
    made = found.load(plain)
    if not isinstance(made, found.kind):
        raise SnapshotError(f"load of the registered type '{name}' gave {type(made).__name__}")
    return made


# -- standard library -------------------------------------------------------------------------------------------


def _load_random(kind: Any, state: Any) -> Any:
    made = kind(0)
    made.setstate(state)
    return made


def _load_queue(kind: Any, state: Any) -> Any:
    most, items, unfinished = state
    made = kind(most)
    made.queue.extend(items)
    made.unfinished_tasks = unfinished
    return made


def _dump_queue(value: Any) -> Any:
    return value.maxsize, list(value.queue), value.unfinished_tasks


_QUEUE = (_dump_queue, _load_queue)
_LIBRARY: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "array.array": (
        lambda value: (value.typecode, value.tobytes()),
        lambda kind, state: kind(state[0], state[1]),
    ),
    "operator.itemgetter": (lambda value: value.__reduce__()[1], lambda kind, state: kind(*state)),
    "queue.LifoQueue": _QUEUE,
    "queue.PriorityQueue": _QUEUE,
    "queue.Queue": _QUEUE,
    "random.Random": (lambda value: value.getstate(), _load_random),
}
"""By name, so that no module is imported before it is needed."""


def _of_library(name: str, kind: type | None = None) -> StoredType | None:
    functions = _LIBRARY.get(name)
    if functions is None:
        return None
    module_name, _, own = name.rpartition(".")
    found = vars(sys.modules.get(module_name) or importlib.import_module(module_name)).get(own)
    if not isinstance(found, type) or (kind is not None and found is not kind):
        return None
    dump, load = functions
    return StoredType(found, name, dump, lambda state: load(found, state))


# -- cached functions ----------------------------------------------------------------------------------------


WRAPPER: type = type(functools.lru_cache(lambda: None))
"""The type of a function with a cache."""


class CacheInfo(NamedTuple):
    hits: int
    misses: int
    maxsize: int | None
    currsize: int


class LruCache:
    """A cache that behaves like ``functools.lru_cache`` and can be restored from stored results."""

    def __init__(self) -> None:
        """Create an empty cache, to be filled by `restore`."""
        self.__wrapped__: Callable[..., Any] = _nothing
        self._maxsize: int | None = None
        self._typed = False
        self._hits = self._misses = 0
        self._entries: OrderedDict[Any, Any] = OrderedDict()
        """Least recently used first."""

    def state(self) -> list[Any]:
        keys, results = list(self._entries), list(self._entries.values())
        return [self.__wrapped__, self._maxsize, self._typed, self._hits, self._misses, keys, results]

    def restore(self, state: list[Any]) -> None:
        self.__wrapped__, self._maxsize, self._typed, self._hits, self._misses, keys, results = state
        self._entries = OrderedDict(zip(keys, results, strict=True))
        for name in functools.WRAPPER_ASSIGNMENTS:
            if hasattr(self.__wrapped__, name):
                setattr(self, name, getattr(self.__wrapped__, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._maxsize == 0:
            self._misses += 1
            return self.__wrapped__(*args, **kwargs)
        key = self._key(args, kwargs)
        if key in self._entries:
            self._hits += 1
            self._entries.move_to_end(key)
            return self._entries[key]
        self._misses += 1
        result = self.__wrapped__(*args, **kwargs)
        self._entries[key] = result
        self._entries.move_to_end(key)
        if self._maxsize is not None and len(self._entries) > self._maxsize:
            self._entries.popitem(last=False)
        return result

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the key as a tuple of tuples: arguments, names and values, types."""
        types = tuple(type(each) for each in (*args, *kwargs.values())) if self._typed else ()
        return (args, tuple(kwargs.items()), types)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def cache_info(self) -> CacheInfo:
        return CacheInfo(self._hits, self._misses, self._maxsize, len(self._entries))

    def cache_clear(self) -> None:
        self._hits = self._misses = 0
        self._entries.clear()

    def cache_parameters(self) -> dict[str, Any]:
        return {"maxsize": self._maxsize, "typed": self._typed}


def _nothing() -> None:
    """Placeholder for the function until it is known."""


def state_of(wrapper: Any) -> list[Any]:
    """Return the content of a Python cache in the form that `LruCache` takes.

    The garbage collector gives the objects it refers to.
    """
    parameters, info = wrapper.cache_parameters(), wrapper.cache_info()
    referred = gc.get_referents(wrapper)
    mark = next((each for each in referred if type(each) is object), None)
    entries = _entries(referred)
    keys = [_own_key(key, mark, typed=parameters["typed"]) for key, _ in entries]
    results = [result for _, result in entries]
    return [
        wrapper.__wrapped__,
        *(parameters["maxsize"], parameters["typed"], info.hits, info.misses),
        *(keys, results),
    ]


def _entries(referred: list[Any]) -> list[tuple[Any, Any]]:
    """Return keys and results, least recently used first.

    A cache with a limit refers to a linked list in that order: key, result and class of each link. A cache without a
    limit has them in its dict.
    """
    start = next(index for index, each in enumerate(referred) if type(each) is dict)
    links = referred[1:start]
    if links:
        return list(zip(links[::3], links[1::3], strict=True))
    return list(referred[start].items())


def _own_key(key: Any, mark: Any, *, typed: bool) -> Any:
    """Convert a key.

    Python's key is the single argument itself, or a tuple of arguments, a mark, names and values, and types.
    """
    if type(key) is not tuple:
        return ((key,), (), ())
    parts = list(key)
    place = next((index for index, each in enumerate(parts) if each is mark), None)
    if place is None:
        count = len(parts) // 2 if typed else len(parts)
        return (tuple(parts[:count]), (), tuple(parts[count:]))
    rest = parts[place + 1 :]
    names = 2 * ((len(rest) - place) // 3) if typed else len(rest)
    named = tuple(zip(rest[:names:2], rest[1:names:2], strict=True))
    return (tuple(parts[:place]), named, tuple(rest[names:]))
