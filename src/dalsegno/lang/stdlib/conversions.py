"""Conversions between kinds, the operators as functions, and other functions without a namespace."""

from __future__ import annotations

import hashlib
import math
import re
import uuid

from dalsegno.lang.errors import wrong_argument
from dalsegno.lang.runtime.operators import STRICT, Operator
from dalsegno.lang.stdlib.arguments import Arguments
from dalsegno.lang.values.kinds import Builtin, Host, Value, as_integer, is_number, parse_number, truthy
from dalsegno.lang.values.to_text import to_json, to_text

_LEADING_INTEGER = re.compile(r"[+-]?\d{1,300}", re.ASCII)
_LEADING_NUMBER = re.compile(r"[+-]?(?:\d{1,300}\.?\d{0,300}|\.\d{1,300})(?:[eE][+-]?\d{1,5})?", re.ASCII)
_BLANKS = " \t\n\r\f\v"
_CALL = 4
"""Units of work of an expensive call, however small its arguments."""
_ALGORITHMS = ("sha256", "sha512", "sha1", "md5")


def _number(host: Host, given: list[Value]) -> Value:
    """Convert as in JavaScript. Text that spells no number is NaN, which cannot leave the program unnoticed."""
    value = given[0]
    if is_number(value):
        return value
    if value is None or isinstance(value, bool):
        return int(bool(value))
    if isinstance(value, str):
        host.meter.search(2 * len(value))
        number = parse_number(value) if value and not value.isspace() else 0
        return math.nan if number is None else number
    return math.nan


def _string(host: Host, given: list[Value]) -> Value:
    return to_text(given[0], host) if given else ""


def _parse_leading(name: str, pattern: re.Pattern[str]) -> Builtin:
    def call(host: Host, given: list[Value]) -> Value:
        text = to_text(given[0], host)
        host.meter.search(len(text))
        match = pattern.match(text.lstrip(_BLANKS))
        return math.nan if match is None else as_integer(float(match.group()))

    return Builtin(name, call, 1, 2)


def _random(host: Host, _given: list[Value]) -> Value:
    return (int.from_bytes(host.entropy(7), "big") >> 3) / 2**53


def _uuid(host: Host, _given: list[Value]) -> Value:
    host.meter.work(_CALL)
    return str(uuid.UUID(bytes=host.entropy(16), version=4))


def _hash(host: Host, given: list[Value]) -> Value:
    """Return the hexadecimal digest of a string's UTF-8, or of any other value's JSON with sorted keys."""
    algorithm = Arguments("hash", given).text(1, "sha256")
    if algorithm not in _ALGORITHMS:
        raise wrong_argument(f"hash() knows {', '.join(_ALGORITHMS)}, not '{algorithm[:100]}'")
    value = given[0]
    text = value if isinstance(value, str) else to_json(value, host, sort_keys=True)
    host.meter.work(_CALL + len(text) // 32)
    host.meter.keep(len(text), "hash()")
    data = text.encode("utf-8", "replace")
    return hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()


def _operator(name: str, operator: Operator) -> Builtin:
    return Builtin(name, lambda host, given: operator(host, given[0], given[1]), 2, 2)


def _and(_host: Host, given: list[Value]) -> Value:
    return next((value for value in given if not truthy(value)), given[-1])


def _or(_host: Host, given: list[Value]) -> Value:
    return next((value for value in given if truthy(value)), given[-1])


_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/",
    "eq": "==", "ne": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">=",
}  # fmt: skip

FUNCTIONS = [
    Builtin("Number", _number, 1, 1),
    Builtin("String", _string, 0, 1),
    Builtin("Boolean", lambda host, given: truthy(given[0]), 1, 1),
    _parse_leading("parseInt", _LEADING_INTEGER),
    _parse_leading("parseFloat", _LEADING_NUMBER),
    Builtin("isNaN", lambda host, given: _is_nan(given[0]), 1, 1),
    Builtin("Number.isNaN", lambda host, given: _is_nan(given[0]), 1, 1),
    Builtin("Number.isInteger", lambda host, given: type(given[0]) is int or _is_whole(given[0]), 1, 1),
    Builtin("Number.isFinite", lambda host, given: is_number(given[0]) and math.isfinite(given[0]), 1, 1),
    Builtin("random", _random, 0, 0),
    Builtin("Math.random", _random, 0, 0),
    Builtin("uuid", _uuid, 0, 0),
    Builtin("hash", _hash, 1, 2),
    Builtin("log", lambda host, given: None),
    *(_operator(name, STRICT[sign]) for name, sign in _OPERATORS.items()),
    Builtin("not", lambda host, given: not truthy(given[0]), 1, 1),
    Builtin("and", _and, 1),
    Builtin("or", _or, 1),
]


def _is_nan(value: Value) -> bool:
    return type(value) is float and math.isnan(value)


def _is_whole(value: Value) -> bool:
    return type(value) is float and value.is_integer()
