"""The values of the language and their common operations: kind, truth, text, equality, order.

Values are Python's own ``None bool int float str list dict`` plus functions. Lists and objects are *values*: this
package never changes one in place while it has several references, so inputs are shared, never copied.

Numbers as text: literals of the language, conversion from and to strings.

A number is an ``int`` if it is integral and fits 64 bits, else a ``float``; ``as_integer`` enforces that rule.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from dalsegno.lang.errors import limit_exceeded, type_error
from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.lang.runtime.limits import COPIED, EVALUATION, MAX_NESTING, Limits, Meter, Span
from dalsegno.lang.runtime.promises import Group, Promise

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


# -- numbers as text -----------------------------------------------------------------------------------------


_PREFIXED = re.compile(r"0[xX][0-9a-fA-F]+(?:_[0-9a-fA-F]+)*|0[bB][01]+(?:_[01]+)*")
_DECIMAL = re.compile(r"(?:\d+(?:_\d+)*)?(?:\.\d+(?:_\d+)*)?(?:[eE][+-]?\d+)?")
_NUMERIC = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")

EXACT = 2**53
WORD = 2**63
MAX_DIGITS = 400
"""Longer digit strings are refused before conversion, whose cost grows with the square of the length."""


def as_integer(number: float) -> int | float:
    """Convert integral floats that an integer represents exactly to integers; minus zero stays a float."""
    if (
        -EXACT <= number <= EXACT
        and number == (whole := int(number))
        and (whole or math.copysign(1, number) > 0)
    ):
        return whole
    return number


def within_word(number: int) -> int | float:
    """Convert integers beyond 64 bits to floats: integer arithmetic is exact for 64 bits only."""
    if -WORD <= number < WORD:
        return number
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def number_literal(text: str) -> int | float:
    """Return the value of a numeral in source text; `ValueError` says what is wrong with it."""
    if len(text) > MAX_DIGITS:
        raise ValueError(f"the number has more than {MAX_DIGITS} characters")
    if _PREFIXED.fullmatch(text):
        return within_word(int(text.replace("_", ""), 0))
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"'{text}' is not a number")
    digits = text.replace("_", "")
    number = within_word(int(digits)) if digits.isdecimal() else as_integer(float(digits))
    if math.isinf(number):
        raise ValueError(f"'{text}' is too large for a number")
    return number


def parse_number(text: str) -> int | float | None:
    """Return the number that a string spells (decimal, surrounding space allowed), or None."""
    stripped = text.strip()
    if len(stripped) > MAX_DIGITS or not stripped.isascii():
        return None
    if _PREFIXED.fullmatch(stripped):
        return within_word(int(stripped.replace("_", ""), 0))
    if not _NUMERIC.fullmatch(stripped):
        return None
    if stripped.lstrip("+-").isdecimal():
        return int(stripped)
    return as_integer(float(stripped))


def number_text(number: int | float) -> str:
    """Return decimal notation without exponent or trailing ``.0``."""
    if isinstance(number, int):
        return str(number) if number.bit_length() < 4096 else number_text(within_word(number))
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else ("Infinity" if number > 0 else "-Infinity")
    if number == int(number):
        return str(int(number)) if abs(number) < 1e21 else format(Decimal(repr(number)), "f")
    text = repr(number)
    return format(Decimal(text), "f") if "e" in text else text
