"""Options of calls as programs, the command line and requests give them: points in time, durations, names.

A call with an unknown option is refused with a suggestion, and with the caller's file and line.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Any, TypeVar

from dalsegno.core.schedules.spec import LAST_MOMENT
from dalsegno.errors import InvalidInput
from dalsegno.lang.durations import BadDuration, parse_duration
from dalsegno.model.suggestion import did_you_mean

Moment = float | str | datetime
"""Unix seconds, ISO 8601 text or a datetime. Without an offset it is in UTC, or in the time zone of
its schedule.
"""
Duration = float | str
"""Seconds, or text such as ``10m``."""


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


F = TypeVar("F", bound=Callable[..., Any])


def refuses_unknown_options(call: str) -> Callable[[F], F]:
    """Decorate a function with named options. ``call``: how users write it, such as ``@app.task``."""

    def decorate(function: F) -> F:
        options = _options(function)

        @functools.wraps(function)
        def checked(*args: Any, **given: Any) -> Any:
            for name in given:
                if name not in options:
                    raise InvalidInput(_unknown(call, name, options))
            return function(*args, **given)

        return checked  # type: ignore[return-value]  # the signature is that of the function

    return decorate


def _options(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    named = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    return [name for name in named if name != "self"]


def _unknown(call: str, name: str, options: list[str]) -> str:
    meant = did_you_mean(name, options).removesuffix("?")
    ending = "?" if meant else "."
    return (
        f"{caller_place(3)}: {call} has no option '{name}'{meant}{ending} Its options: {', '.join(options)}"
    )


def caller_place(levels: int) -> str:
    """Return ``file:line`` of the caller so many levels up."""
    frame = sys._getframe(levels)  # noqa: SLF001 - inspect.stack() would read the source of every caller
    return f"{os.path.relpath(frame.f_code.co_filename)}:{frame.f_lineno}"
