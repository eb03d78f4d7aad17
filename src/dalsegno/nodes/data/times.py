"""Points in time as nodes read and write them, and the ``datetime`` node.

* Formats: ISO 8601 text, Unix seconds or milliseconds, IANA time zones.
* strftime and strptime patterns are limited.
"""

from __future__ import annotations

import math
import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, model_validator

from dalsegno.nodes.builder import node_type
from dalsegno.nodes.parameters import NodeParameters, Number
from dalsegno.ports.node import NodeContext, NodeError

MILLISECONDS_FROM = 1e11
"""Numbers from this one on are milliseconds: as seconds they would be after the year 5000."""

_OFFSET = re.compile(r"([+-])(\d{2}):?(\d{2})", re.ASCII)
_LONGEST_TEXT = 100


class InstantError(ValueError):
    """The value is not a point in time, or is outside the years 1 to 9999."""


def read_zone(name: str) -> tzinfo:
    """Return an IANA zone or a fixed offset such as ``+02:00``; raise ZoneInfoNotFoundError with a readable message."""
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
"""Parameter type: the name of an existing time zone."""


def read_instant(value: Any, zone: tzinfo = UTC) -> datetime:
    """Return an aware time. Text without an offset is a local time in ``zone``; numbers are Unix time."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InstantError(
            "should be a point in time: ISO text such as '2030-01-31T09:00:00Z', or Unix seconds"
        )
    if isinstance(value, str):
        return _from_text(value.strip(), zone)
    return from_unix(value / 1000 if abs(value) >= MILLISECONDS_FROM else value)


def from_unix(seconds: float) -> datetime:
    """Return a time in UTC."""
    if math.isfinite(seconds):
        try:
            return datetime.fromtimestamp(seconds, UTC)
        except (ValueError, OverflowError, OSError):
            pass
    raise InstantError(f"{seconds:g} Unix seconds is outside the years 1 to 9999")


def iso_text(instant: datetime) -> str:
    """Format as ISO 8601 with milliseconds; UTC is written ``Z``."""
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


CalendarUnit = Literal[
    "millisecond", "milliseconds", "second", "seconds", "minute", "minutes", "hour", "hours",
    "day", "days", "week", "weeks", "month", "months", "year", "years",
]  # fmt: skip

_CLOCK_SECONDS = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0}
_DAYS = {"day": 1, "week": 7}
_MONTHS = {"month": 1, "year": 12}
_WIDTH = re.compile(r"%[^A-Za-z%]*\d")
"""A field width: the C library would pad to any number of characters."""
_CALENDAR_LONGEST_TEXT = 200


class CalendarError(ValueError):
    """The time is outside the years 1 to 9999, or the pattern or text is invalid."""


def shift(instant: datetime, amount: float, unit: CalendarUnit) -> datetime:
    """Return ``instant`` moved by an amount of units.

    Units up to hours are elapsed time. Days and longer keep the time of day in the instant's zone across changes of
    daylight saving. A local time that such a change skips is moved forward by the skipped hour.
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
    """Format with strftime; raise CalendarError for a pattern that the system does not support."""
    if _WIDTH.search(pattern):
        raise CalendarError("the format has a field width (%10d), which is not supported")
    try:
        return instant.strftime(pattern)
    except (ValueError, UnicodeError) as error:
        raise CalendarError(f"the format {pattern!r} cannot be used: {error}") from None


def parse_time(text: Any, pattern: str, zone: tzinfo) -> datetime:
    """Parse with strptime. A pattern without an offset reads a local time in ``zone``."""
    if not isinstance(text, str) or len(text) > _CALENDAR_LONGEST_TEXT:
        raise CalendarError(
            f"'date' should be text of up to {_CALENDAR_LONGEST_TEXT} characters to be parsed by 'format'"
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
    """Normalise a local time that does not exist or exists twice, according to its zone."""
    return local.astimezone(UTC).astimezone(local.tzinfo)


class DatetimeParameters(NodeParameters):
    operation: Literal["now", "add", "subtract", "format", "parse"] = Field("now", description="What to do.")
    date: Any = Field(
        None,
        description="The time to work on: ISO text, Unix seconds, or for `parse` text in `format`. Default: now.",
    )
    amount: Number = Field(0, description="For `add` and `subtract`: number of units.")
    unit: CalendarUnit = Field(
        "seconds",
        description="For `add` and `subtract`. Days and longer keep the local time of day; months are shortened if "
        "needed (31 January plus a month is the last of February).",
    )
    timezone: ZoneName | None = Field(
        None,
        description="IANA zone of the result, and of a date that names none. Default: the date's own, else UTC.",
    )
    format: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="strftime pattern: for the output's `formatted`, or to `parse`.",
    )

    @model_validator(mode="after")
    def _check_date(self) -> DatetimeParameters:
        if self.operation == "parse" and "date" not in self.model_fields_set:
            raise ValueError("parameter 'date' is missing: operation 'parse' needs the text")
        return self


_OUTPUT = {
    "type": "object",
    "properties": {
        "iso": {"type": "string", "format": "date-time"},
        "unix": {"type": "number"},
        "parts": {"type": "object"},
        "timezone": {"type": "string"},
        "formatted": {"type": "string", "description": "With `format`."},
    },
}


@node_type("datetime", parameters=DatetimeParameters, output_schema=_OUTPUT)
async def datetime_node(ctx: NodeContext, parameters: DatetimeParameters) -> dict[str, Any]:
    """Returns, shifts, formats or parses a time; the output has it as `iso`, `unix` and `parts`."""
    try:
        instant = _result(ctx.now, parameters)
        formatted = _formatted(instant, parameters)
    except (InstantError, CalendarError) as error:
        raise NodeError(
            f"operation '{parameters.operation}': {error}", code="INVALID_TIME", retryable=False
        ) from error
    return describe(instant) | formatted


def describe(instant: datetime) -> dict[str, Any]:
    """Return a time in the formats that later nodes use."""
    unix = instant.timestamp()
    return {
        "iso": iso_text(instant),
        "unix": int(unix) if unix.is_integer() else unix,
        "parts": {
            "year": instant.year,
            "month": instant.month,
            "day": instant.day,
            "hour": instant.hour,
            "minute": instant.minute,
            "second": instant.second,
            "millisecond": instant.microsecond // 1000,
            "weekday": instant.isoweekday(),
            "day_of_year": instant.timetuple().tm_yday,
            "week": instant.isocalendar().week,
        },
        "timezone": str(instant.tzinfo),
    }


def _result(now: float, parameters: DatetimeParameters) -> datetime:
    zone = read_zone(parameters.timezone) if parameters.timezone else None
    start = _start(now, parameters, zone or read_zone("UTC"))
    local = _in_zone(start, zone)
    match parameters.operation:
        case "add":
            return shift(local, parameters.amount, parameters.unit)
        case "subtract":
            return shift(local, -parameters.amount, parameters.unit)
        case _:
            return local


def _start(now: float, parameters: DatetimeParameters, zone: tzinfo) -> datetime:
    if "date" not in parameters.model_fields_set or parameters.operation == "now":
        return from_unix(now)
    if parameters.operation == "parse" and parameters.format is not None:
        return parse_time(parameters.date, parameters.format, zone)
    try:
        return read_instant(parameters.date, zone)
    except InstantError as error:
        raise InstantError(f"'date' {error}") from error


def _in_zone(instant: datetime, zone: tzinfo | None) -> datetime:
    try:
        return instant if zone is None else instant.astimezone(zone)
    except (OverflowError, ValueError):
        raise CalendarError("the time is outside the years 1 to 9999 there") from None


def _formatted(instant: datetime, parameters: DatetimeParameters) -> dict[str, Any]:
    if parameters.operation == "format":
        return {"formatted": format_time(instant, parameters.format or "%Y-%m-%dT%H:%M:%S%z")}
    if parameters.format is not None and parameters.operation != "parse":
        return {"formatted": format_time(instant, parameters.format)}
    return {}
