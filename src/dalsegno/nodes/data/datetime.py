"""The ``datetime`` node: the current time, arithmetic with times, formatting and parsing, in any time zone."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import Any, Literal

from pydantic import Field, model_validator

from dalsegno.nodes.builder import node_type
from dalsegno.nodes.data.times import (
    CalendarError,
    CalendarUnit,
    InstantError,
    ZoneName,
    format_time,
    from_unix,
    iso_text,
    parse_time,
    read_instant,
    read_zone,
    shift,
)
from dalsegno.nodes.parameters import NodeParameters, Number
from dalsegno.ports.node import NodeContext, NodeError


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
