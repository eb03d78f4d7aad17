"""The values of the language and their common operations: kind, truth, text, equality, order.

Values are Python's own ``None bool int float str list dict`` plus functions. Lists and objects are *values*: this
package never changes one in place while it has several references, so inputs are shared, never copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from dalsegno.lang.errors import limit_exceeded, type_error
from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.lang.runtime.limits import COPIED, EVALUATION, MAX_NESTING, Limits, Meter, Span
from dalsegno.lang.runtime.promises import Group, Promise
from dalsegno.lang.values.numbers import number_text

if TYPE_CHECKING:
    from dalsegno.lang.runtime.code import FunctionCode
    from dalsegno.lang.runtime.pending_effects import Requests

Value: TypeAlias = Any
"""None, bool, int, float, str, list[Value], dict[str, Value], FunctionValue or Builtin; in scripts also a `Promise`,
a `Group` of them, an `ErrorValue` or `Configured`."""


class Host:
    """The environment of an evaluation: its meter, the time, and a source of random bytes.

    ``requests`` receives a script's requests for tasks, timers and other work; graph expressions have none. A given
    ``meter``, shared with other evaluations, replaces the limits.
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
    """A variable that closures share, so it has identity. Like a slot it is a holder, of one value."""

    __slots__ = ("value",)

    def __init__(self, value: Value = None) -> None:
        self.value = value

    def __getitem__(self, key: Any) -> Value:
        return self.value

    def __setitem__(self, key: Any, value: Value) -> None:
        self.value = value


class Vacant:
    """The placeholder of a variable's value: not set yet, not decoded yet, or stored elsewhere (``blob``)."""

    __slots__ = ("blob", "data", "value")

    def __init__(self, blob: str = "", data: Any = None) -> None:
        self.blob = blob
        self.data = data
        """The value's JSON."""
        self.value: Value = self
        """The decoded value; until then the placeholder itself."""


UNSET = Vacant()


class FunctionValue:
    """A function of the program with its captured cells; equal only to itself."""

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
    """The result of ``Task.with({…})``: a namespace of the library with options for its calls."""

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
    """Return the name of the value's kind, as in ``typeof`` and messages."""
    return _KINDS.get(type(value), "object")


def is_number(value: Value) -> bool:
    return type(value) is int or type(value) is float


def truthy(value: Value) -> bool:
    """Return the truth value. ``false null 0 -0 NaN ""`` are falsy; empty lists and objects are truthy."""
    if isinstance(value, (list, dict)):
        return True
    if type(value) is float:
        return value != 0 and not math.isnan(value)
    return bool(value)


def key_of(value: Value) -> str:
    """Return the text of a value as the key of an object."""
    if type(value) is str:
        return value
    if is_number(value):
        return number_text(value)
    if type(value) is Promise:
        return value.id
    raise type_error(f"an object's key must be a string or a number, not {kind_of(value)}")


def charged_key(meter: Meter, value: Value) -> str:
    """Return `key_of` and charge the lookup of a long key, which is compared as a whole."""
    key = key_of(value)
    if len(key) >= COPIED:
        meter.compare(len(key))
    return key


def equal(host: Host, left: Value, right: Value, depth: int = 0) -> bool:
    """Compare by value and deep. Key order does not matter; different kinds are unequal; NaN is unequal to itself."""
    left_type, right_type = type(left), type(right)
    if left_type is right_type and (left_type is list or left_type is dict):
        return _equal_parts(host, left, right, depth, set())
    if left_type is ErrorValue and right_type is ErrorValue:
        return equal(host, _compared_parts(left), _compared_parts(right), depth)
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
    """Compare two lists or two objects.

    ``known`` are pairs of them that were found equal: parts with many references are compared once.
    """
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


def _compared_parts(error: ErrorValue) -> list[Value]:
    """Return the parts of an error that decide equality: its position does not."""
    return [error.code, error.message, error.type or error.code, error.data]


def check_ordered(host: Host, left: Value, right: Value, operator: str) -> None:
    """Check that two values can be ordered: numbers with numbers, strings with strings (by code point)."""
    if type(left) is str and type(right) is str:
        host.meter.compare(min(len(left), len(right)))
        return
    if not (is_number(left) and is_number(right)):
        hint = unawaited(left, right)
        raise type_error(f"'{operator}' cannot order {kind_of(left)} and {kind_of(right)}{hint}")


def unawaited(*operands: Value) -> str:
    """Return the hint for a promise that is used in place of its value."""
    return "; await the promise first" if "promise" in map(kind_of, operands) else ""
