"""Cron lines: validation and the times they name.

A line has the five fields of a crontab: minute, hour, day of the month, month, day of the week. It may use ``*``,
lists, ranges, steps and English names; ``L`` and ``LW`` for the last (working) day of a month, ``5L`` for its last
Friday, ``MON#2`` for its second Monday; and the words ``@hourly``, ``@daily`` … If both days are given, either
matches, unless one of them begins with ``*``.

When clocks change, a line with a fixed hour and minute still fires once: in a repeated hour at its first pass, and
in a skipped hour at the first moment after it. A line whose minute or hour begins with ``*`` follows elapsed time:
times in a repeated hour fire twice, times in a skipped hour not at all. Debian's cron does the same, and so does
cronsim, which computes the times here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from dalsegno.errors import InvalidInput

WORDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

_FIELDS = (
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day of the month", "1 to 31, L, LW"),
    ("month", "1 to 12, JAN to DEC"),
    ("day of the week", "0 to 7 (0 and 7 are Sunday), SUN to SAT, 5L, MON#2"),
)
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_SPELLINGS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (tuple(map(str, range(60))),),
    (tuple(map(str, range(24))),),
    (tuple(map(str, range(1, 32))),),
    (tuple(map(str, range(1, 13))), _MONTHS),
    (tuple(map(str, range(7))), _DAYS),
)
"""The values of each field, in order."""
_LONGEST_LINE = 200
_LONGEST_ZONE = 100
_SAMPLE_TIME = datetime(2024, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
_PHRASES: dict[str, tuple[str, str, str | None]] = {
    "minute": ("every minute", "* * * * *", "1m"),
    "hour": ("every hour, on the hour", "0 * * * *", "1h"),
    "weekday": ("Monday to Friday at midnight", "0 0 * * MON-FRI", None),
    "day": ("every day at midnight", "0 0 * * *", "1d"),
    "midnight": ("every day at midnight", "0 0 * * *", "1d"),
    "night": ("every night at two", "0 2 * * *", "1d"),
    "week": ("every Monday at midnight", "0 0 * * MON", "7d"),
    **{
        day: (f"every {day.capitalize()} at midnight", f"0 0 * * {day[:3].upper()}", None)
        for day in ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    },
    "month": ("the first of every month at midnight", "0 0 1 * *", None),
    "year": ("the first of January at midnight", "0 0 1 1 *", None),
}
"""Words of English, with the cron line and the interval that may be meant."""
_ADVERBS = {
    "hourly": "hour",
    "daily": "day",
    "nightly": "night",
    "weekly": "week",
    "monthly": "month",
    "yearly": "year",
}
FIELDS_OF_LINE = "five fields: minute, hour, day of the month, month, day of the week, such as '0 2 * * *'"
_EXAMPLE = f"write {FIELDS_OF_LINE}"


def read_cron(line: str) -> str:
    """Return the line in its five fields; raises InvalidInput that names the invalid field."""
    text = " ".join(line.split())
    if not text or len(text) > _LONGEST_LINE or not text.isascii():
        raise InvalidInput(f"the cron line {line[:_LONGEST_LINE]!r} cannot be used; {_EXAMPLE}")
    if text.startswith("@"):
        return _word(text)
    if (meant := in_cron(text)) and not any(sign in text for sign in "*0123456789"):
        raise InvalidInput(f"{text!r} is neither a cron line nor an interval; {meant}")
    fields = text.split(" ")
    if len(fields) != len(_FIELDS):
        raise InvalidInput(f"the cron line {text!r} has {_count(fields)}")
    for position, field in enumerate(fields):
        _check_field(text, position, field)
    _check_whole(text)
    return text


def in_cron(phrase: str) -> str:
    """Return the cron line and the interval that a phrase such as ``every day`` may mean; empty if none is known."""
    words = [word.removesuffix("s") for word in phrase.lower().split()]
    adverbs = [
        _ADVERBS[close[0]] for word in words if (close := get_close_matches(word, _ADVERBS, n=1, cutoff=0.8))
    ]
    known = [word for word in (*words, *adverbs) if word in _PHRASES]
    if not known:
        return ""
    when, line, interval = _PHRASES[known[0]]
    said = f"for {when} write '{line}' (minute, hour, day of the month, month, day of the week)"
    if interval is None:
        return said
    return f"{said}; for an interval that counts from now write 'every {interval}' (a command takes --every {interval})"


def read_zone(name: str) -> tzinfo:
    """Return an IANA time zone; raises InvalidInput."""
    zone = _find_zone(name) if 0 < len(name) <= _LONGEST_ZONE else None
    if zone is not None:
        return zone
    close = get_close_matches(name[:_LONGEST_ZONE], available_timezones(), n=1)
    hint = f"did you mean '{close[0]}'?" if close else "write its IANA name, such as 'Europe/Berlin'"
    raise InvalidInput(f"there is no time zone {name[:_LONGEST_ZONE]!r}; {hint}")


def upcoming(line: str, zone: tzinfo, after: float) -> Iterator[float]:
    """Yield the line's times after ``after``, in order; end if none comes within fifty years."""
    try:
        for moment in CronSim(line, datetime.fromtimestamp(after, zone)):
            # In the second pass of a repeated hour the first results are those of the first pass.
            if (found := moment.timestamp()) > after:
                yield found
                after = found
    except (OverflowError, ValueError, OSError):
        return  # past the last year of the calendar


def roughly_before(line: str, zone: tzinfo, moment: float, count: int) -> float:
    """Return a moment with at least ``count`` of the line's times, or all there are, between it and ``moment``.

    The result is a place to start from, not one of the times. Iterating backwards differs slightly where clocks
    change; a day is subtracted to allow for that.
    """
    try:
        latest = datetime.fromtimestamp(moment, zone)
        earlier = deque(islice(CronSim(line, latest, reverse=True), count), maxlen=1)
        return ((earlier[0] if earlier else latest) - _DAY).timestamp()
    except (OverflowError, ValueError, OSError):
        return 0.0


@lru_cache(maxsize=256)
def _find_zone(name: str) -> tzinfo | None:
    if name == "UTC":
        return UTC  # cronsim knows that UTC has no clock changes
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None  # OSError: a directory of the database, such as 'Europe'


def _word(text: str) -> str:
    found = WORDS.get(text.lower())
    if found is None:
        close = get_close_matches(text.lower(), WORDS, n=1)
        meant = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(WORDS)}"
        raise InvalidInput(f"the cron word {text!r} is not known; {meant}")
    return found


def _count(fields: list[str]) -> str:
    if len(fields) == len(_FIELDS) + 1:
        return (
            "6 fields: there are none for seconds or years here; leave five, or use an interval"
            " such as 'every 30s' for less than a minute"
        )
    return f"{len(fields)} {'field' if len(fields) == 1 else 'fields'}; {_EXAMPLE}"


def _check_field(line: str, position: int, field: str) -> None:
    """Check the field term by term, with every other field left open."""
    for term in field.split(","):
        fields = ["*"] * len(_FIELDS)
        fields[position] = term
        try:
            CronSim(" ".join(fields), _SAMPLE_TIME)
        except (CronSimError, ValueError):
            name, values = _FIELDS[position]
            raise InvalidInput(
                f"the cron line {line!r} has a bad {name} (field {position + 1}): {_problem(position, term)};"
                f" it takes {values}, '*', lists (1,2), ranges (1-5) and steps (*/2)"
            ) from None


def _problem(position: int, term: str) -> str:
    """Return what is wrong with a term, and a correction if one can be guessed."""
    if not term:
        return "there is nothing before or after a ','"
    if "?" in term:
        return f"{term!r} is not possible, '?' is written '*' here"
    if (rising := _rising(position, term)) is not None:
        return f"{term!r} is not possible, a range must rise: write '{rising}'"
    if term.endswith("/0"):
        return f"{term!r} is not possible, a step is at least 1"
    return f"{term!r} is not possible"


def _rising(position: int, term: str) -> str | None:
    """Rewrite a falling range as two rising ones: ``22-2`` becomes ``22-23,0-2``."""
    first, _, last = term.upper().partition("-")
    for values in _SPELLINGS[position]:
        if first in values and last in values and values.index(first) > values.index(last):
            late = first if first == values[-1] else f"{first}-{values[-1]}"
            early = last if last == values[0] else f"{values[0]}-{last}"
            return f"{late},{early}"
    return None


def _check_whole(line: str) -> None:
    """Refuse a line whose fields are valid but together never match."""
    try:
        next(iter(CronSim(line, _SAMPLE_TIME)))
    except (CronSimError, StopIteration):
        raise InvalidInput(
            f"the cron line {line!r} never matches: no date has this day of the month, month and day of the week"
        ) from None
