"""Points in time as nodes read and write them: ISO 8601 text, Unix seconds or milliseconds, IANA time zones."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator

MILLISECONDS_FROM = 1e11
"""Numbers from here on are milliseconds: as seconds they would lie beyond the year 5000."""

_OFFSET = re.compile(r"([+-])(\d{2}):?(\d{2})", re.ASCII)
_LONGEST_TEXT = 100


class InstantError(ValueError):
    """A value that is no point in time, or one outside the years 1 to 9999."""


def read_zone(name: str) -> tzinfo:
    """An IANA zone or a fixed offset such as ``+02:00``; raises ZoneInfoNotFoundError with a plain sentence."""
    if name.upper() in ("UTC", "Z"):
        return UTC
    if offset := _OFFSET.fullmatch(name):
        minutes = int(offset[2]) * 60 + int(offset[3])
        if minutes < 24 * 60:
            return timezone(timedelta(minutes=minutes if offset[1] == "+" else -minutes))
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        # OSError: names of directories of the database, such as `Europe`.
        raise ZoneInfoNotFoundError(
            f"no time zone {name!r}; write it like 'Europe/Berlin' or '+02:00'"
        ) from None


def _known_zone(name: str) -> str:
    try:
        read_zone(name)
    except ZoneInfoNotFoundError as error:
        raise ValueError(f"is unusable: {error.args[0]}") from None
    return name


ZoneName = Annotated[str, AfterValidator(_known_zone)]
"""Parameter type: the name of a time zone that exists."""


def read_instant(value: Any, zone: tzinfo = UTC) -> datetime:
    """An aware time. Text without an offset is a local time in ``zone``; numbers are Unix time."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InstantError(
            "should be a point in time: ISO text such as '2030-01-31T09:00:00Z', or Unix seconds"
        )
    if isinstance(value, str):
        return _from_text(value.strip(), zone)
    return from_unix(value / 1000 if abs(value) >= MILLISECONDS_FROM else value)


def from_unix(seconds: float) -> datetime:
    """A time in UTC."""
    if math.isfinite(seconds):
        try:
            return datetime.fromtimestamp(seconds, UTC)
        except (ValueError, OverflowError, OSError):
            pass
    raise InstantError(f"{seconds:g} Unix seconds is outside the years 1 to 9999")


def iso_text(instant: datetime) -> str:
    """ISO 8601 to the millisecond; UTC is written ``Z``."""
    text = instant.isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00") + "Z" if instant.tzinfo is UTC else text


def _from_text(text: str, zone: tzinfo) -> datetime:
    if 0 < len(text) <= _LONGEST_TEXT:
        try:
            return read_instant(float(text))
        except InstantError:
            raise
        except ValueError:
            pass
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            pass
        else:
            return found.replace(tzinfo=zone) if found.tzinfo is None else found
    raise InstantError(
        f"should be a point in time such as '2030-01-31T09:00:00Z', not {text[:_LONGEST_TEXT]!r}"
    )
