"""Decomposition of a value: its tag, its JSON part, and the values inside it.

`explode` covers every kind of value that may live across an ``await``; any other value cannot be stored.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import inspect
import pathlib
import re
import types
import uuid
import zoneinfo
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from dalsegno.lang.python.runtime.itertools_classes import Filter
from dalsegno.lang.python.runtime.nested import NestedCall, NestedFunction
from dalsegno.lang.python.snapshot import iterators
from dalsegno.lang.python.snapshot.format import Tag
from dalsegno.lang.python.snapshot.itertools_state import CLASSES, CONVERTERS, made, slots_of
from dalsegno.lang.python.snapshot.registry import LruCache
from dalsegno.lang.python.timeouts import Timeout
from dalsegno.lang.python.values.annotations import is_model, is_named_tuple
from dalsegno.lang.runtime.promises import Group, Settled

Parts: TypeAlias = tuple[list[Any], Sequence[Any]]
"""The beginning of the row, as plain JSON, and the values that follow it."""


def _items(tag: str) -> Callable[[Any], Parts]:
    return lambda value: ([tag], list(value))


def _members(tag: str) -> Callable[[Any], Parts]:
    """Return the parts of a set. Texts are sorted, so that the same set is the same row in every process."""
    return lambda value: ([tag], sorted(value) if all(type(item) is str for item in value) else list(value))


def _entries(tag: str) -> Callable[[Any], Parts]:
    return lambda value: ([tag], [part for entry in value.items() for part in entry])


def base64_text(data: bytes | bytearray) -> str:
    return base64.b64encode(data).decode("ascii")


def _datetime(value: dt.datetime) -> Parts:
    return [Tag.DATETIME, value.replace(tzinfo=None, fold=0).isoformat(), value.fold], [value.tzinfo]


def _time(value: dt.time) -> Parts:
    return [Tag.TIME, value.replace(tzinfo=None, fold=0).isoformat(), value.fold], [value.tzinfo]


def _timezone(value: dt.tzinfo) -> Parts:
    """Return the parts of a time zone with a fixed offset."""
    offset = value.utcoffset(None) or dt.timedelta()
    plain = dt.timezone(offset)
    name = None if value.tzname(None) == plain.tzname(None) else value.tzname(None)
    return [Tag.TIMEZONE, name], [offset]


def _namespace(value: types.SimpleNamespace) -> Parts:
    return [Tag.NAMESPACE, *vars(value)], list(vars(value).values())


def _partial(value: functools.partial[Any]) -> Parts:
    return [Tag.PARTIAL], [value.func, value.args, value.keywords]


def _method(value: Any) -> Parts:
    return [Tag.METHOD, value.__name__], [value.__self__]


def _group(value: Group) -> Parts:
    if value.keys is not None:
        return [Tag.NAMED_GROUP, value.kind, value.shape, list(value.keys)], list(value.items)
    return [Tag.GROUP, value.kind, value.shape], list(value.items)


def _timeout(value: Timeout) -> Parts:
    return [Tag.TIMEOUT, value.seconds, value.fired], [value.promise]


def _nested(value: NestedFunction) -> Parts:
    return [Tag.NESTED, value.number], [value.binder, *value.cells]


def _call(value: NestedCall) -> Parts:
    return [Tag.CALL, value.awaited], [value.function, value.arguments]


def _iterator(value: Any) -> Parts:
    maker, arguments, *state = value.__reduce__()
    place = state[0] if state else None
    combine = _COMBINED.get(type(value))
    if combine is not None and not all(map(_is_plain_source, _sources(value, arguments))):
        return _stored_iterator(combine(arguments, place))
    return [Tag.ITERATOR, maker.__name__], [place, *arguments]


def _sources(value: Any, arguments: Sequence[Any]) -> Sequence[Any]:
    if type(value) is enumerate:
        return arguments[:1]
    return arguments if type(value) is zip else arguments[1:]


def _is_plain_source(source: Any) -> bool:
    """Return whether Python's iterators can be created over it without running user code."""
    return isinstance(source, iterators.ITERABLE) or type(source) in _BY_TYPE


_COMBINED: dict[type, Callable[[Any, Any], Any]] = {
    enumerate: lambda arguments, _: made(iterators.Enumerate, source=arguments[0], place=arguments[1]),
    zip: lambda arguments, strict: made(iterators.Zip, sources=tuple(arguments), strict=bool(strict)),
    map: lambda arguments, _: made(iterators.Map, function=arguments[0], sources=tuple(arguments[1:])),
    filter: lambda arguments, _: made(Filter, predicate=arguments[0], source=arguments[1], wanted=True),
}
"""Python's combining iterators, converted to storable ones."""


def _stored_iterator(value: Any) -> Parts:
    kind = type(value)
    return [Tag.STORED_ITERATOR, kind.__name__], [getattr(value, name) for name in slots_of(kind)]


def _converted(convert: Callable[[Any], Any]) -> Callable[[Any], Parts]:
    return lambda value: _stored_iterator(convert(value))


_EXHAUSTED: Parts = [Tag.ITERATOR, "iter"], [0, ()]


def _dict_iterator(value: Any) -> Parts:
    found = value if isinstance(value, iterators.DictIterator) else iterators.of_dict_iterator(value)
    if found is None:
        return _EXHAUSTED
    return [Tag.DICT_ITERATOR, found.view, found.used, found.size], [found.mapping]


def _dict_view(value: Any) -> Parts:
    return [Tag.DICT_VIEW, iterators.DICT_VIEWS[type(value)]], [iterators.dict_of(value)]


def _set_iterator(value: Any) -> Parts:
    found = value if isinstance(value, iterators.SetIterator) else iterators.of_set_iterator(value)
    if found is None:
        return _EXHAUSTED
    return [Tag.SET_ITERATOR, found.size], [found.owner, *found.remaining]


def _rest_of_iterator(value: Any) -> Parts:
    return [Tag.ITERATOR, "iter"], [0, tuple(iterators.remaining(value))]


def _pattern(value: re.Pattern[Any]) -> Parts:
    return [Tag.PATTERN, value.flags], [value.pattern]


def _suppress(value: contextlib.suppress) -> Parts:
    return [Tag.SUPPRESS], list(vars(value)["_exceptions"])


_BY_TYPE: dict[type, Callable[[Any], Parts]] = {
    list: _items(Tag.LIST),
    tuple: _items(Tag.TUPLE),
    dict: _entries(Tag.DICT),
    set: _members(Tag.SET),
    frozenset: _members(Tag.FROZENSET),
    complex: lambda value: ([Tag.COMPLEX, repr(value)], ()),
    bytearray: lambda value: ([Tag.BYTEARRAY, base64_text(value)], ()),
    type(...): lambda value: ([Tag.CONSTANT, "Ellipsis"], ()),
    type(NotImplemented): lambda value: ([Tag.CONSTANT, "NotImplemented"], ()),
    decimal.Decimal: lambda value: ([Tag.DECIMAL, str(value)], ()),
    uuid.UUID: lambda value: ([Tag.UUID, value.hex], ()),
    fractions.Fraction: lambda value: ([Tag.FRACTION, str(value)], ()),
    dt.datetime: _datetime,
    dt.date: lambda value: ([Tag.DATE, value.isoformat()], ()),
    dt.time: _time,
    dt.timedelta: lambda value: ([Tag.TIMEDELTA, value.days, value.seconds, value.microseconds], ()),
    dt.timezone: _timezone,
    zoneinfo.ZoneInfo: lambda value: ([Tag.ZONE], [value.key]),
    re.Pattern: _pattern,
    range: lambda value: ([Tag.RANGE], [value.start, value.stop, value.step]),
    slice: lambda value: ([Tag.SLICE], [value.start, value.stop, value.step]),
    collections.OrderedDict: _entries(Tag.ORDEREDDICT),
    collections.Counter: _entries(Tag.COUNTER),
    collections.defaultdict: lambda value: (
        [Tag.DEFAULTDICT],
        [value.default_factory, *(part for entry in value.items() for part in entry)],
    ),
    collections.deque: lambda value: ([Tag.DEQUE, value.maxlen], list(value)),
    types.SimpleNamespace: _namespace,
    functools.partial: _partial,
    types.MethodType: _method,
    Group: _group,
    Settled: lambda value: ([Tag.SETTLED], [value.value]),
    Timeout: _timeout,
    NestedFunction: _nested,
    NestedCall: _call,
    iterators.DictIterator: _dict_iterator,
    iterators.SetIterator: _set_iterator,
    iterators.SET_ITERATOR: _set_iterator,
    contextlib.suppress: _suppress,
    **dict.fromkeys(iterators.REDUCIBLE, _iterator),
    **dict.fromkeys(CLASSES.values(), _stored_iterator),
    **{kind: _converted(convert) for kind, convert in CONVERTERS.items()},
    LruCache: lambda value: ([Tag.CACHE], value.state()),
    **dict.fromkeys(iterators.DICT_ITERATORS, _dict_iterator),
    **dict.fromkeys(iterators.DICT_VIEWS, _dict_view),
    **dict.fromkeys(iterators.REVERSED_DICT_ITERATORS, _rest_of_iterator),
}


def explode(value: Any, name_of: Callable[[Any], str], may_call: Callable[[Any, str], bool]) -> Parts | None:
    """Return the parts of a value, or None if it cannot be stored.

    ``name_of`` returns the stored name of a class, or raises; ``may_call`` says whether a method of an object or class
    may be stored.
    """
    parts = _exploded(value, name_of)
    if parts is not None and parts[0][0] == Tag.METHOD and not may_call(parts[1][0], parts[0][1]):
        return None
    return parts


def _exploded(value: Any, name_of: Callable[[Any], str]) -> Parts | None:
    by_type = _BY_TYPE.get(type(value))
    if by_type is not None:
        return by_type(value)
    if isinstance(value, types.BuiltinMethodType) and not isinstance(value.__self__, types.ModuleType | type):
        return _method(value)
    if isinstance(value, types.MethodDescriptorType | types.WrapperDescriptorType):
        return [Tag.METHOD, value.__name__], [value.__objclass__]
    kind = type(value)
    if isinstance(value, enum.Enum):
        return _enum(value, name_of(kind))
    if isinstance(value, dt.tzinfo) and kind.__module__.partition(".")[0] == "pydantic_core":
        return _timezone(
            value
        )  # the zone of every time that Pydantic has parsed: an offset, and equal to Python's own
    if isinstance(value, pathlib.PurePath):
        return [Tag.PATH, kind.__name__, str(value)], ()
    if is_named_tuple(kind):
        return [Tag.NAMED_TUPLE, name_of(kind)], list(value)
    if is_model(kind):
        state = value.__getstate__()
        return [Tag.MODEL, name_of(kind), *state], list(state.values())
    if isinstance(value, msgspec.Struct):
        return _structure(value, name_of(kind))
    if dataclasses.is_dataclass(kind) and kind.__new__ is object.__new__:
        names, values = _state(value)
        return [Tag.INSTANCE, name_of(kind), *names], values
    return None


def _structure(value: msgspec.Struct, name: str) -> Parts | None:
    """Return the fields of a msgspec structure, which can only be built with all of them."""
    if getattr(value, "__dict__", None) or _holds_itself(value):
        return None
    names = [field for field in value.__struct_fields__ if hasattr(value, field)]
    return [Tag.STRUCT, name, *names], [getattr(value, field) for field in names]


def _holds_itself(value: msgspec.Struct) -> bool:
    """Return whether it is in a ring of structures and tuples alone, none of which could be built first."""
    if value.__struct_config__.frozen:
        return False
    waiting: list[Any] = [value]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        for item in one if isinstance(one, tuple) else msgspec.structs.astuple(one):
            if item is value:
                return True
            if isinstance(item, tuple | msgspec.Struct) and id(item) not in seen:
                seen.add(id(item))
                waiting.append(item)
    return False


def _enum(value: enum.Enum, name: str) -> Parts:
    if (
        type(value).__members__.get(value.name) is value
    ):  # composite flags have no name, or not that of a member
        return [Tag.ENUM, name, value.name], ()
    return [Tag.FLAG, name], [value.value]


def _state(value: Any) -> tuple[list[str], list[Any]]:
    """Return the attributes of an instance, from slots and ``__dict__``, without cached values."""
    kind = type(value)
    names = [name for each in kind.__mro__ for name in _slots(each) if hasattr(value, name)]
    values = [getattr(value, name) for name in names]
    for name, item in getattr(value, "__dict__", {}).items():
        if not isinstance(inspect.getattr_static(kind, name, None), functools.cached_property):
            names.append(name)
            values.append(item)
    return names, values


def _slots(kind: type) -> list[str]:
    slots = kind.__dict__.get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    prefix = f"_{kind.__name__.lstrip('_')}"
    return [
        prefix + name if name.startswith("__") and not name.endswith("__") else name
        for name in names
        if name not in ("__dict__", "__weakref__")
    ]
