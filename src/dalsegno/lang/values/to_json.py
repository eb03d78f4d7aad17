"""Values that leave a script: results, inputs of tasks, options. Only JSON leaves."""

from __future__ import annotations

import math

from dalsegno.lang.errors import limit_exceeded, type_error
from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.lang.runtime.limits import MAX_NESTING
from dalsegno.lang.runtime.promises import Group, Promise, describe
from dalsegno.lang.values.kinds import Host, Value, kind_of, number_text
from dalsegno.lang.values.sizes import SHORT, Measure, is_small
from dalsegno.lang.values.to_text import path_text

_PLAIN = frozenset({str, int, bool, type(None)})


def plain(host: Host, value: Value, what: str) -> Value:
    """Return the value as JSON, sharing its parts; errors become objects. Throw for a value without a JSON form.

    The error names the path. The size as JSON, repeated parts included, is charged before the value is written.
    """
    kind = type(value)
    if kind is str:
        size = len(value) if len(value) <= SHORT else Measure(host.meter, what)(value)
        host.meter.keep(size, what)
        return value
    if kind in _PLAIN:
        return value
    if kind is list or kind is dict:
        size = 0 if is_small(value) else Measure(host.meter, what)(value)
        left = _container(host, value, [], what)
        if size:
            host.meter.keep(size, what)
        return left
    return _single(host, value, [], what)


def _container(host: Host, value: Value, path: list[str | int], what: str) -> Value:
    if len(path) >= MAX_NESTING:
        raise limit_exceeded(f"{what} is nested deeper than {MAX_NESTING} levels")
    host.meter.work(len(value))
    if set(map(type, value if type(value) is list else value.values())) <= _PLAIN:
        return value
    changed = None
    for key, item in list(enumerate(value)) if type(value) is list else list(value.items()):
        kind = type(item)
        if kind in _PLAIN:
            continue
        inside = [*path, key]
        left = (
            _container(host, item, inside, what)
            if kind is list or kind is dict
            else _single(host, item, inside, what)
        )
        if left is not item:
            changed = value.copy() if changed is None else changed
            changed[key] = left
    return value if changed is None else changed


def _single(host: Host, value: Value, path: list[str | int], what: str) -> Value:
    if type(value) is float:
        if math.isfinite(value):
            return value or 0  # minus zero stays inside the machine
        raise type_error(f"{what} holds {number_text(value)} at {path_text(path)}: it is not a JSON number")
    if type(value) is ErrorValue:
        return _container(host, describe(value), path, what)
    if type(value) in (Promise, Group):
        raise type_error(f"{what} holds a promise at {path_text(path)}: await it first")
    where = f"{what} holds a value of type {kind_of(value)} at {path_text(path)}"
    raise type_error(f"{where}: only data can leave a script")
