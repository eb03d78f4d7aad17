"""Calendar arithmetic and strftime/strptime with limits, for the ``datetime`` node."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Literal

CalendarUnit = Literal[
    "millisecond", "milliseconds", "second", "seconds", "minute", "minutes", "hour", "hours",
    "day", "days", "week", "weeks", "month", "months", "year", "years",
]  # fmt: skip

_CLOCK_SECONDS = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0}
_DAYS = {"day": 1, "week": 7}
_MONTHS = {"month": 1, "year": 12}
_WIDTH = re.compile(r"%[^A-Za-z%]*\d")
"""A field width: the C library would pad to any number of characters."""
_LONGEST_TEXT = 200


class CalendarError(ValueError):
    """A time outside the years 1 to 9999, or a pattern or text that does not fit."""


def shift(instant: datetime, amount: float, unit: CalendarUnit) -> datetime:
    """``instant`` moved by an amount of units.

    Units up to hours are elapsed time. Days and longer keep the time of day in the instant's zone, across changes of
    daylight saving; a time that such a change skips moves on by the skipped hour.
    """
    name = unit.removesuffix("s")
    try:
        if name in _CLOCK_SECONDS:
            return _elapse(instant, timedelta(seconds=amount * _CLOCK_SECONDS[name]))
        if name in _DAYS and not float(amount).is_integer():
            return _elapse(instant, timedelta(days=amount * _DAYS[name]))
        return _settle(_move(instant, _whole(amount, unit), name))
    except (OverflowError, ValueError) as error:
        if isinstance(error, CalendarError):
            raise
        raise CalendarError(f"{amount:g} {unit} from there lies outside the years 1 to 9999") from None


def format_time(instant: datetime, pattern: str) -> str:
    """strftime; raises CalendarError for a pattern that the system cannot write."""
    if _WIDTH.search(pattern):
        raise CalendarError("the format has a field width (%10d), which is not supported")
    try:
        return instant.strftime(pattern)
    except (ValueError, UnicodeError) as error:
        raise CalendarError(f"the format {pattern!r} cannot be used: {error}") from None


def parse_time(text: Any, pattern: str, zone: tzinfo) -> datetime:
    """strptime; a pattern without an offset reads a local time in ``zone``."""
    if not isinstance(text, str) or len(text) > _LONGEST_TEXT:
        raise CalendarError(
            f"'date' should be text of up to {_LONGEST_TEXT} characters to be parsed by 'format'"
        )
    try:
        found = datetime.strptime(text, pattern)  # noqa: DTZ007 - the zone is set below where the text has none
    except (ValueError, re.error) as error:
        raise CalendarError(f"'date' does not fit 'format': {error}") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=zone)


def _whole(amount: float, unit: str) -> int:
    if not float(amount).is_integer():
        raise CalendarError(f"'amount' should be a whole number for {unit}, not {amount:g}")
    return int(amount)


def _elapse(instant: datetime, elapsed: timedelta) -> datetime:
    return (instant.astimezone(UTC) + elapsed).astimezone(instant.tzinfo)


def _move(instant: datetime, amount: int, name: str) -> datetime:
    if name in _DAYS:
        return instant + timedelta(days=amount * _DAYS[name])
    months = instant.year * 12 + instant.month - 1 + amount * _MONTHS[name]
    year, month = months // 12, months % 12 + 1
    if not 1 <= year <= 9999:
        raise OverflowError
    return instant.replace(year=year, month=month, day=min(instant.day, monthrange(year, month)[1]))


def _settle(local: datetime) -> datetime:
    """A local time that does not exist, or exists twice, as the zone understands it."""
    return local.astimezone(UTC).astimezone(local.tzinfo)
