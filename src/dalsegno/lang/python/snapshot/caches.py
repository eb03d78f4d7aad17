"""``functools.cache`` and ``lru_cache`` on functions of a workflow: the cached results are part of the snapshot."""

from __future__ import annotations

import functools
import gc
from collections import OrderedDict
from collections.abc import Callable
from types import MethodType
from typing import Any, NamedTuple

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
