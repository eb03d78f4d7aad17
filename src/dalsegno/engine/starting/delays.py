"""Start times as programs, the command line and requests give them."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from dalsegno.core.schedules.spec import LAST_MOMENT
from dalsegno.errors import InvalidInput
from dalsegno.lang.durations import BadDuration, parse_duration

Moment = float | str | datetime
"""Unix seconds, ISO 8601 text or a datetime. Without an offset it is in UTC."""
Duration = float | str
"""Seconds, or text such as ``10m``."""


def begins_at(delay: Duration | None, start_at: Moment | None, now: float) -> float | None:
    """Return the time at which an execution begins. None: at once, also for a time in the past."""
    if delay is not None and start_at is not None:
        raise InvalidInput("give either 'delay' or 'start_at', not both: each says when the execution begins")
    if delay is not None:
        due = now + _seconds(delay)
    elif start_at is not None:
        due = read_moment(start_at)
    else:
        return None
    return due if due > now else None


def _seconds(delay: Duration) -> float:
    return seconds_of(delay, "delay")


def seconds_of(given: Duration, what: str) -> float:
    """Return seconds. Raises InvalidInput, which names the option."""
    try:
        return parse_duration(given)
    except BadDuration as error:
        raise InvalidInput(f"'{what}': {str(given)[:100]!r} {error}") from None


def read_moment(given: Moment) -> float:
    """Return Unix seconds. Raises InvalidInput."""
    try:
        found = _read(given)
    except (ValueError, OverflowError):
        found = math.nan
    if not 0 <= found <= LAST_MOMENT:
        raise InvalidInput(
            f"'start_at': {str(given)[:100]!r} is not a point in time; write it like '2030-01-31T09:00:00+01:00'"
        )
    return found


def _read(given: Moment) -> float:
    if isinstance(given, int | float) and not isinstance(given, bool):
        return float(given)
    found = datetime.fromisoformat(given.strip()) if isinstance(given, str) else given
    if not isinstance(found, datetime):
        raise ValueError(given)
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
