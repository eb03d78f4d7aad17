"""Points in time and durations as programs, the command line and requests give them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, tzinfo

from dalsegno.core.schedules.spec import LAST_MOMENT
from dalsegno.errors import InvalidInput
from dalsegno.lang.durations import BadDuration, parse_duration

Moment = float | str | datetime
"""Unix seconds, ISO 8601 text or a datetime. Without an offset it is in UTC, or in the time zone of
its schedule.
"""
Duration = float | str
"""Seconds, or text such as ``10m``."""


def begins_at(delay: Duration | None, start_at: Moment | None, now: float) -> float | None:
    """Return the time at which an execution begins. None: at once, also for a time in the past."""
    if delay is not None and start_at is not None:
        raise InvalidInput("give either 'delay' or 'start_at', not both: each says when the execution begins")
    if delay is not None:
        due = now + read_duration(delay, "'delay'")
    elif start_at is not None:
        due = read_moment(start_at, "'start_at'")
    else:
        return None
    return due if due > now else None


def read_duration(given: Duration, what: str) -> float:
    """Return seconds. Raises InvalidInput, which begins with ``what``."""
    try:
        return parse_duration(given)
    except BadDuration as error:
        raise InvalidInput(f"{what}: {str(given)[:100]!r} {error}") from None


def read_moment(given: Moment, what: str, zone: tzinfo = UTC) -> float:
    """Return Unix seconds. ``zone``: of a time without an offset. Raises InvalidInput, which begins
    with ``what``.
    """
    try:
        found = _read(given, zone)
    except (ValueError, OverflowError):
        found = math.nan
    if not 0 <= found <= LAST_MOMENT:
        raise InvalidInput(
            f"{what}: {str(given)[:100]!r} is not a point in time; write it like '2030-01-31T09:00:00+01:00'"
        )
    return found


def _read(given: Moment, zone: tzinfo) -> float:
    if isinstance(given, int | float) and not isinstance(given, bool):
        return float(given)
    found = datetime.fromisoformat(given.strip()) if isinstance(given, str) else given
    if not isinstance(found, datetime):
        raise ValueError(given)
    return (found if found.tzinfo is not None else found.replace(tzinfo=zone)).timestamp()
