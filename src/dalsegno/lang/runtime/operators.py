"""Operators between values, in two modes: strict (the language's own) and loose (conditions of graphs).

Loose differs in two points: a string that spells a number compares with numbers as one, and ordering with null is false
instead of an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import add as plus
from operator import ge, gt, le, lt
from operator import mul as times
from operator import sub as minus
from typing import Any, TypeAlias

from dalsegno.lang.errors import type_error
from dalsegno.lang.runtime.promises import Promise
from dalsegno.lang.values.kinds import (
    WORD,
    Host,
    Value,
    as_integer,
    charged_key,
    check_ordered,
    equal,
    is_number,
    kind_of,
    parse_number,
    unawaited,
    within_word,
)
from dalsegno.lang.values.regex import pattern_found
from dalsegno.lang.values.to_text import to_text

Operator: TypeAlias = Callable[[Host, Value, Value], Value]


def _numbers(operator: str, left: Value, right: Value) -> None:
    if not (is_number(left) and is_number(right)):
        hint = unawaited(left, right)
        raise type_error(f"'{operator}' needs two numbers, not {kind_of(left)} and {kind_of(right)}{hint}")


def _arithmetic(sign: str, compute: Callable[[Any, Any], Any]) -> Operator:
    def apply(host: Host, left: Value, right: Value) -> Value:
        if type(left) is int and type(right) is int:
            whole = compute(left, right)
            return whole if -WORD <= whole < WORD else within_word(whole)
        _numbers(sign, left, right)
        try:
            return as_integer(compute(float(left), float(right)))
        except OverflowError:
            return math.inf

    return apply


subtract = _arithmetic("-", minus)
_add_numbers = _arithmetic("+", plus)
_multiply_numbers = _arithmetic("*", times)


def add(host: Host, left: Value, right: Value) -> Value:
    if type(left) is int and type(right) is int:
        whole = left + right
        return whole if -WORD <= whole < WORD else within_word(whole)
    if type(left) is str or type(right) is str:
        left_text, right_text = to_text(left, host), to_text(right, host)
        host.meter.allocate(len(left_text) + len(right_text), "'+'")
        return host.meter.made(left_text + right_text, "'+'")
    if is_number(left) and is_number(right):
        return _add_numbers(host, left, right)
    raise type_error(f"'+' cannot add {kind_of(left)} and {kind_of(right)}{unawaited(left, right)}")


def multiply(host: Host, left: Value, right: Value) -> Value:
    _numbers("*", left, right)
    if (left == 0 or right == 0) and (left < 0 or right < 0):
        return -0.0
    return _multiply_numbers(host, left, right)


def divide(host: Host, left: Value, right: Value) -> Value:
    _numbers("/", left, right)
    if right == 0:
        if left == 0 or math.isnan(left):
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1.0, right)
    if type(left) is int and type(right) is int and left and left % right == 0:
        return within_word(left // right)
    try:
        return as_integer(left / right)
    except OverflowError:
        return math.inf if (left > 0) == (right > 0) else -math.inf


def remainder(host: Host, left: Value, right: Value) -> Value:
    """Return the remainder; it has the sign of the dividend, as in JavaScript."""
    _numbers("%", left, right)
    if right == 0 or (type(left) is float and math.isinf(left)):
        return math.nan
    if type(left) is int and type(right) is int:
        rest = abs(left) % abs(right)
        return (-rest or -0.0) if left < 0 else rest
    return as_integer(math.fmod(left, right))


def power(host: Host, left: Value, right: Value) -> Value:
    """Return the power, exact within 64 bits; the size of an integer result is known before it is computed."""
    _numbers("**", left, right)
    if type(left) is int and type(right) is int and right >= 0:
        if left in (-1, 0, 1) or right == 0:
            return int(left ** (right % 2 if right > 1 and left == -1 else min(right, 1)))
        if (left.bit_length() - 1) * right < WORD.bit_length():
            return within_word(left**right)
    try:
        result = float(left) ** float(right)
    except OverflowError:
        return -math.inf if left < 0 and right % 2 == 1 else math.inf
    except ZeroDivisionError:
        return math.inf
    return math.nan if isinstance(result, complex) else as_integer(result)


def _not_equal(host: Host, left: Value, right: Value) -> bool:
    return not equal(host, left, right)


ORDERINGS: dict[str, Callable[[Value, Value], bool]] = {
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


def _ordering(sign: str) -> Operator:
    test = ORDERINGS[sign]

    def apply(host: Host, left: Value, right: Value) -> bool:
        if type(left) is not int or type(right) is not int:
            check_ordered(host, left, right, sign)
        return test(left, right)

    return apply


def _loose_ordering(sign: str) -> Operator:
    test = ORDERINGS[sign]

    def apply(host: Host, left: Value, right: Value) -> bool:
        if left is None or right is None:
            return False
        left, right = to_numbers(host, left, right)
        check_ordered(host, left, right, sign)
        return test(left, right)

    return apply


def to_numbers(host: Host, left: Value, right: Value) -> tuple[Value, Value]:
    """Convert a number and a string that spells one to two numbers."""
    if type(left) is str and is_number(right):
        host.meter.search(len(left))
        number = parse_number(left)
        return (left if number is None else number), right
    if type(right) is str and is_number(left):
        host.meter.search(len(right))
        number = parse_number(right)
        return left, (right if number is None else number)
    return left, right


def loose_equal(host: Host, left: Value, right: Value) -> bool:
    return equal(host, *to_numbers(host, left, right))


def _loose_not_equal(host: Host, left: Value, right: Value) -> bool:
    return not loose_equal(host, left, right)


def _membership(same: Callable[[Host, Value, Value], bool]) -> Operator:
    def contains(host: Host, whole: Value, part: Value) -> bool:
        """Return whether a list has an equal item, a string that substring, an object that key.

        Null contains nothing.
        """
        if whole is None:
            return False
        if isinstance(whole, list):
            host.meter.work(len(whole))
            return any(same(host, item, part) for item in whole)
        if isinstance(whole, str):
            host.meter.search(len(whole))
            return part is not None and to_text(part, host) in whole
        if isinstance(whole, dict):
            return (isinstance(part, str) or type(part) is Promise) and charged_key(host.meter, part) in whole
        raise type_error(f"only a list, a string or an object can contain something, not {kind_of(whole)}")

    return contains


contains = _membership(equal)
loose_contains = _membership(loose_equal)


def _two_texts(operator: str, left: Value, right: Value) -> bool:
    """Return whether there are two texts to compare: null on the left is simply no match."""
    if left is None:
        return False
    if not (isinstance(left, str) and isinstance(right, str)):
        raise type_error(f"'{operator}' needs two strings, not {kind_of(left)} and {kind_of(right)}")
    return True


def matches(host: Host, left: Value, right: Value) -> bool:
    return _two_texts("matches", left, right) and pattern_found(right, left, host)


def starts_with(host: Host, left: Value, right: Value) -> bool:
    if not _two_texts("startsWith", left, right):
        return False
    host.meter.compare(len(right))
    return bool(left.startswith(right))


def ends_with(host: Host, left: Value, right: Value) -> bool:
    if not _two_texts("endsWith", left, right):
        return False
    host.meter.compare(len(right))
    return bool(left.endswith(right))


def _swapped(operator: Operator) -> Operator:
    return lambda host, left, right: operator(host, right, left)


def _negated(operator: Operator) -> Operator:
    return lambda host, left, right: not operator(host, left, right)


_TEXT_TESTS: dict[str, Operator] = {"matches": matches, "startsWith": starts_with, "endsWith": ends_with}


def _with_negations(tests: dict[str, Operator]) -> dict[str, Operator]:
    return tests | {f"not {name}": _negated(test) for name, test in tests.items()}


STRICT: dict[str, Operator] = {
    "+": add, "-": subtract, "*": multiply, "/": divide, "%": remainder, "**": power,
    "==": equal, "!=": _not_equal,
    **{name: _ordering(name) for name in ORDERINGS},
    **_with_negations({"in": _swapped(contains), "contains": contains, **_TEXT_TESTS}),
}  # fmt: skip

LOOSE: dict[str, Operator] = STRICT | {
    "==": loose_equal, "!=": _loose_not_equal,
    **{name: _loose_ordering(name) for name in ORDERINGS},
    **_with_negations({"in": _swapped(loose_contains), "contains": loose_contains}),
}  # fmt: skip
