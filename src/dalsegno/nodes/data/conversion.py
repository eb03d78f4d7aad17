"""Explicit conversions between JSON types. A value that cannot be converted exactly is an error."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Literal

from dalsegno.lang.runtime.limits import MAX_NESTING
from dalsegno.lang.values.kinds import parse_number
from dalsegno.nodes.parameters import as_text, json_type

ValueType = Literal[
    "any",
    "auto",
    "string",
    "text",
    "number",
    "integer",
    "boolean",
    "bool",
    "object",
    "array",
    "list",
    "json",
    "null",
]

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0", ""})


class ConversionError(ValueError):
    """The value cannot be converted to the requested type."""


def convert(value: Any, wanted: ValueType | None) -> Any:
    """Return ``value`` converted to ``wanted``; raise ConversionError if that is impossible."""
    return value if wanted is None else _CONVERSIONS[wanted](value)


def read_json(text: str) -> Any:
    """Parse a JSON document; raise ConversionError for anything else, and for one nested too deeply."""
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        found, too_deep = None, True
    except ValueError as error:
        raise ConversionError(f"cannot be read as JSON: {error}") from None
    else:
        too_deep = _deeper_than(found, MAX_NESTING)
    if too_deep:
        raise ConversionError(f"cannot be read as JSON: it is nested deeper than {MAX_NESTING} levels")
    return found


def _deeper_than(value: Any, limit: int) -> bool:
    """Return True if the value is nested deeper than ``limit``.

    The walk goes level by level: a recursive one would need the stack that this check protects.
    """
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _refused(value: Any, wanted: str) -> ConversionError:
    shown = f" {value[:40]!r}" if isinstance(value, str) else ""
    return ConversionError(f"{json_type(value)}{shown} cannot become {wanted}")


def _number(value: Any) -> int | float:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return value
    number = parse_number(value) if isinstance(value, str) else None
    if number is None or not math.isfinite(number):
        raise _refused(value, "a number")
    return number


def _integer(value: Any) -> int:
    number = _number(value)
    if isinstance(number, float) and not number.is_integer():
        raise _refused(value, "a whole number")
    return int(number)


def _boolean(value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, int | float) and value in (0, 1):
        return value == 1
    word = value.strip().lower() if isinstance(value, str) else None
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise _refused(value, "a boolean")


def _object(value: Any) -> dict[str, Any]:
    found = read_json(value) if isinstance(value, str) else value
    if not isinstance(found, dict):
        raise _refused(value, "an object")
    return found


def _array(value: Any) -> list[Any]:
    found = read_json(value) if isinstance(value, str) else value
    if not isinstance(found, list):
        raise _refused(value, "a list")
    return found


def _json(value: Any) -> Any:
    return read_json(value) if isinstance(value, str) else value


def _unchanged(value: Any) -> Any:
    return value


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "any": _unchanged,
    "auto": _unchanged,
    "string": as_text,
    "text": as_text,
    "number": _number,
    "integer": _integer,
    "boolean": _boolean,
    "bool": _boolean,
    "object": _object,
    "array": _array,
    "list": _array,
    "json": _json,
    "null": lambda _value: None,
}
