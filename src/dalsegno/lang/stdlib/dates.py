"""``Date.*``: times are milliseconds since 1970 (UTC). The current time is passed in; no clock is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from dalsegno.lang.errors import wrong_argument
from dalsegno.lang.stdlib.arguments import Arguments
from dalsegno.lang.values.kinds import Builtin, Host, Value, is_number, kind_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIRECTIVES = frozenset("YmdHMSfjyIpaAbBzZ%uVGFT")
MAX_FORMAT = 200
MAX_TEXT = 200
"""Maximum number of characters of a date, or of a time zone's name, surrounding blanks included."""
_FORMATTING, _PARSING = 20, 4
"""Units of work."""
_UNKNOWN_ZONE = 2_000
"""Units of work of searching for a time zone that does not exist."""


def _now(host: Host, _given: list[Value]) -> Value:
    return int(host.now * 1000)


def moment(value: Value, name: str) -> datetime:
    """Return a time given as milliseconds or ISO 8601 text; a time without zone is UTC."""
    try:
        if is_number(value):
            return _EPOCH + timedelta(milliseconds=value)
        if isinstance(value, str) and len(value) <= MAX_TEXT:
            parsed = datetime.fromisoformat(value.strip())
            return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise wrong_argument(f"{name}(): {value!r} is not a date; use ISO 8601 or milliseconds") from None
    if isinstance(value, str):
        shown = f"{value[:50]!r}…"
        raise wrong_argument(f"{name}(): {shown} is not a date; use ISO 8601 or milliseconds")
    raise wrong_argument(f"{name}() needs ISO 8601 text or milliseconds, not {kind_of(value)}")


@lru_cache(maxsize=1024)  # more than the number of time zones
def _known_zone(key: str) -> ZoneInfo:
    return ZoneInfo(key)


def _zone(host: Host, key: str) -> ZoneInfo:
    try:
        if len(key) <= MAX_TEXT:
            return _known_zone(key)
    except (KeyError, ValueError, OSError):  # an unknown key, a malformed key, or a directory of the database
        host.meter.work(_UNKNOWN_ZONE)
    shown = key if len(key) <= MAX_TEXT else f"{key[:MAX_TEXT]}…"
    raise wrong_argument(f"unknown time zone '{shown}'; use an IANA name such as Europe/Paris")


def _check_format(pattern: str) -> None:
    if len(pattern) > MAX_FORMAT:
        raise wrong_argument(f"Date.format(): the format is longer than {MAX_FORMAT} characters")
    directives = pattern.replace("%%", "").split("%")[1:]
    for directive in directives:
        if directive[:1] not in _DIRECTIVES or not directive:
            raise wrong_argument(f"Date.format(): unknown directive '%{directive[:1]}'")


def iso_text(time: datetime) -> str:
    """Return ISO 8601 text with milliseconds, ``Z`` for UTC."""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _format(host: Host, given: list[Value]) -> Value:
    """Handle ``Date.format(time, format, zone)``: strftime directives; null for the time means now."""
    host.meter.work(_FORMATTING)
    arguments = Arguments("Date.format", given)
    value = arguments.get(0)
    time = moment(int(host.now * 1000) if value is None else value, "Date.format")
    try:
        time = time.astimezone(_zone(host, arguments.text(2, "UTC")))
    except OverflowError:
        raise wrong_argument("Date.format(): the date is out of range") from None
    if arguments.get(1) is None:
        return iso_text(time)
    pattern = arguments.text(1)
    _check_format(pattern)
    try:
        return time.strftime(pattern)
    except ValueError:
        raise wrong_argument(f"Date.format(): the format {pattern!r} cannot be used") from None


def _parse(host: Host, given: list[Value]) -> Value:
    host.meter.work(_PARSING)
    time = moment(given[0], "Date.parse")
    return (time - _EPOCH) // timedelta(milliseconds=1)


FUNCTIONS = [
    Builtin("now", _now, 0, 0),
    Builtin("Date.now", _now, 0, 0),
    Builtin("Date.format", _format, 0, 3),
    Builtin("Date.parse", _parse, 1, 1),
]
