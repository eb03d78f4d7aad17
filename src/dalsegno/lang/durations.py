"""Durations: numbers are seconds, texts carry units (``500ms``, ``30s``, ``1h30m``, ``7d``)."""

from __future__ import annotations

import math
import re

MAX_SECONDS = 100 * 366 * 86_400.0
"""A century: anything longer is a mistake, and would exceed the range of dates."""

_SECONDS = {
    "ms": 0.001,
    "millisecond": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "d": 86_400.0,
    "day": 86_400.0,
    "w": 604_800.0,
    "week": 604_800.0,
}
_PART = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([a-z]*)\s*,?")
_HINT = "write seconds as a number, or text such as '30s', '500ms', '1h30m' or '7d'"


class BadDuration(ValueError):
    """An invalid duration. The message is a half sentence that says what is wrong and what to write instead."""


def parse_duration(value: object) -> float:
    """Return seconds; raise `BadDuration`."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise BadDuration(f"is not a duration; {_HINT}")
    seconds = _parse_text(value) if isinstance(value, str) else value
    if seconds < 0 or (isinstance(seconds, float) and math.isnan(seconds)):
        raise BadDuration(f"is negative; {_HINT}")
    if seconds > MAX_SECONDS:
        raise BadDuration("is longer than a hundred years")
    return float(seconds)


def duration_text(seconds: float) -> str:
    """Return a duration as `parse_duration` reads it: ``7d``, ``1h30m``, ``1.5s``, ``20ms``."""
    thousandths = round(seconds * 1000)
    if thousandths < 1000:
        return f"{thousandths}ms" if thousandths else "0s"
    found = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
        count, thousandths = divmod(thousandths, size)
        if count:
            found.append(f"{count}{unit}")
    if thousandths:
        found.append(f"{thousandths / 1000:g}s")
    return "".join(found)


def _parse_text(text: str) -> float:
    """Parse one or more numbers with units; a lone number without a unit is seconds."""
    lowered, position, total = text.strip().lower(), 0, 0.0
    if len(lowered) > 100:
        raise BadDuration(f"is not a duration; {_HINT}")
    while position < len(lowered) or not lowered:
        part = _PART.match(lowered, position)
        if part is None:
            raise BadDuration(f"is not a duration; {_HINT}")
        whole = position == 0 and part.end() == len(lowered)
        total += float(part[1]) * _unit(part[2], alone=whole)
        position = part.end()
    return total


def _unit(unit: str, *, alone: bool) -> float:
    if not unit and alone:
        return 1.0
    seconds = _SECONDS.get(unit) or _SECONDS.get(unit.removesuffix("s"))
    if seconds is None:
        what = f"has the unknown unit '{unit}'" if unit else "has a number without a unit"
        raise BadDuration(f"{what}; {_HINT}")
    return seconds
