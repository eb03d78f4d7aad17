"""The values of the language and what holds for all of them: kind, truth, text, equality, order.

Values are Python's own ``None bool int float str list dict`` plus functions. Lists and objects are *values*: nothing in
this package changes one in place once it can be seen from two places, so inputs are shared, never copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from dalsegno.lang.effects import ErrorValue
from dalsegno.lang.errors import limit_exceeded, type_error
from dalsegno.lang.limits import COPIED, EVALUATION, MAX_NESTING, Limits, Meter, Span
from dalsegno.lang.numerals import number_text
from dalsegno.lang.promises import Group, Promise

if TYPE_CHECKING:
    from dalsegno.lang.code import FunctionCode
    from dalsegno.lang.requests import Requests

Value: TypeAlias = Any
"""None, bool, int, float, str, list[Value], dict[str, Value], FunctionValue or Builtin; in scripts also a `Promise`,
a `Group` of them, an `ErrorValue` or `Configured`."""


class Host:
    """What an evaluation is given from outside: its meter, the time, and a source of random bytes.

    ``requests`` is where a script's library asks for tasks, timers and the like; graph expressions have none.
    A ``meter`` that is given, shared with other evaluations, takes the place of the limits.
    """

    __slots__ = ("entropy", "meter", "now", "requests")

    def __init__(
        self,
        limits: Limits,
        now: float,
        entropy: Callable[[int], bytes],
        requests: Requests | None = None,
        span: Span = EVALUATION,
        meter: Meter | None = None,
    ) -> None:
        self.meter = Meter(limits, span) if meter is None else meter
        self.now = now
        self.entropy = entropy
        self.requests = requests


class Cell:
    """A variable that closures share, so it has identity. Like a slot it is a place: a container of one thing."""

    __slots__ = ("value",)

    def __init__(self, value: Value = None) -> None:
        self.value = value

    def __getitem__(self, key: Any) -> Value:
        return self.value

    def __setitem__(self, key: Any, value: Value) -> None:
        self.value = value


class Vacant:
    """What a variable holds whose value is not there: not set yet, not decoded yet, or stored elsewhere (``blob``)."""

    __slots__ = ("blob", "data", "value")

    def __init__(self, blob: str = "", data: Any = None) -> None:
        self.blob = blob
        self.data = data
        """The value's JSON."""
        self.value: Value = self
        """What was decoded, once it was; until then itself."""


UNSET = Vacant()


class FunctionValue:
    """A function of the program together with the cells it captured; equal only to itself."""

    __slots__ = ("cells", "code")

    def __init__(self, code: FunctionCode, cells: tuple[Cell, ...]) -> None:
        self.code = code
        self.cells = cells


@dataclass(frozen=True, slots=True)
class Builtin:
    """A library function, known by its name."""

    name: str
    call: Callable[[Host, list[Value]], Value]
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Configured:
    """What ``Task.with({…})`` gives: a namespace of the library with options for its calls."""

    namespace: str
    options: dict[str, Value]


_KINDS: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "list",
    dict: "object",
    FunctionValue: "function",
    Builtin: "function",
    Promise: "promise",
    Group: "promise",
    ErrorValue: "error",
}


def kind_of(value: Value) -> str:
    """The name of the value's kind, as ``typeof`` and messages give it."""
    return _KINDS.get(type(value), "object")


def is_number(value: Value) -> bool:
    return type(value) is int or type(value) is float


def truthy(value: Value) -> bool:
    """Falsy: ``false null 0 -0 NaN ""``; empty lists and objects are true."""
    if isinstance(value, (list, dict)):
        return True
    if type(value) is float:
        return value != 0 and not math.isnan(value)
    return bool(value)


def key_of(value: Value) -> str:
    """The text under which a value is a key of an object."""
    if type(value) is str:
        return value
    if is_number(value):
        return number_text(value)
    if type(value) is Promise:
        return value.id
    raise type_error(f"an object's key must be a string or a number, not {kind_of(value)}")


def charged_key(meter: Meter, value: Value) -> str:
    """`key_of`, with a charge for looking up a long one, which is compared as a whole."""
    key = key_of(value)
    if len(key) >= COPIED:
        meter.compare(len(key))
    return key


def equal(host: Host, left: Value, right: Value, depth: int = 0) -> bool:
    """By value and deep; key order does not matter; different kinds are unequal; NaN is unequal to itself."""
    left_type, right_type = type(left), type(right)
    if left_type is right_type and (left_type is list or left_type is dict):
        return _equal_parts(host, left, right, depth, set())
    if left_type is ErrorValue and right_type is ErrorValue:
        return equal(host, _told(left), _told(right), depth)
    if left_type is str and right_type is str:
        if len(left) >= COPIED and len(left) == len(right):
            host.meter.compare(len(left))
        return bool(left == right)
    if left_type is right_type or (is_number(left) and is_number(right)):
        return bool(left == right)
    if left_type is Promise and right_type is str:
        return bool(left.id == right)
    return bool(right_type is Promise and left_type is str and right.id == left)


def _equal_parts(host: Host, left: Value, right: Value, depth: int, known: set[tuple[int, int]]) -> bool:
    """Two lists, or two objects. ``known`` are pairs of them that were found equal: those in a value that refers to its
    parts many times are compared once."""
    if len(left) != len(right):
        return False
    pair = (id(left), id(right))
    if pair in known:
        return True
    if depth >= MAX_NESTING:
        raise limit_exceeded(f"cannot compare values nested deeper than {MAX_NESTING} levels")
    host.meter.work(len(left) + 1)
    if type(left) is dict:
        host.meter.compare(sum(map(len, left)))
        if left.keys() != right.keys():
            return False
    holds_others = False
    for key in left if type(left) is dict else range(len(left)):
        one, other = left[key], right[key]
        kind = type(one)
        if kind is type(other) and (kind is list or kind is dict):
            holds_others = True
            same = _equal_parts(host, one, other, depth + 1, known)
        else:
            same = equal(host, one, other, depth + 1)
        if not same:
            return False
    if holds_others:
        known.add(pair)
    return True


def _told(error: ErrorValue) -> list[Value]:
    """What makes an error equal to another: where it happened does not."""
    return [error.code, error.message, error.type or error.code, error.data]


def check_ordered(host: Host, left: Value, right: Value, operator: str) -> None:
    """Numbers order with numbers and strings with strings (by code point)."""
    if type(left) is str and type(right) is str:
        host.meter.compare(min(len(left), len(right)))
        return
    if not (is_number(left) and is_number(right)):
        hint = unawaited(left, right)
        raise type_error(f"'{operator}' cannot order {kind_of(left)} and {kind_of(right)}{hint}")


def unawaited(*operands: Value) -> str:
    """What to say where a promise stands in place of its value."""
    return "; await the promise first" if "promise" in map(kind_of, operands) else ""
