"""Options of ``Task.with({…})`` and ``Node.with({…})``: checked where they are given, kept in the token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from dalsegno.errors import InvalidInput
from dalsegno.lang.durations import parse_duration
from dalsegno.model.retry import RetryPolicy

KNOWN = ("queue", "priority", "retries", "retry", "timeout", "key", "delay", "concurrency")
RETRY_FIELDS = ("max_attempts", "initial_delay", "factor", "max_delay", "jitter", "on")


class TaskOptions(Struct, frozen=True, gc=False):
    """None: as the task itself was registered."""

    queue: str | None = None
    priority: int = 0
    retry: RetryPolicy | None = None
    timeout: float | None = None
    key: str | None = None
    """The idempotency key that attempts see, instead of one derived from the token."""
    delay: float = 0.0
    """Seconds before the first attempt."""
    concurrency: str | None = None
    """Tasks that share this key share its limit."""


NO_OPTIONS = TaskOptions()


def task_options(given: Mapping[str, Any] | None) -> TaskOptions:
    """Raises InvalidInput that names the option."""
    if not given:
        return NO_OPTIONS
    unknown = sorted(set(given) - set(KNOWN))
    if unknown:
        raise InvalidInput(f"there is no option '{unknown[0]}'; known are {', '.join(KNOWN)}")
    return TaskOptions(
        _text(given, "queue"),
        _whole(given, "priority"),
        _retry(given),
        _duration(given, "timeout"),
        _text(given, "key"),
        _duration(given, "delay") or 0.0,
        _text(given, "concurrency"),
    )


def _text(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and (not isinstance(value, str) or not value):
        raise InvalidInput(f"the option '{name}' must be a text")
    return value


def _whole(given: Mapping[str, Any], name: str) -> int:
    value = given.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"the option '{name}' must be a whole number")
    return value


def _duration(given: Mapping[str, Any], name: str) -> float | None:
    value = given.get(name)
    if value is None:
        return None
    try:
        return parse_duration(value)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"the option '{name}' is not a duration: {error}") from None


def _retry(given: Mapping[str, Any]) -> RetryPolicy | None:
    value = given.get("retry", given.get("retries"))
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1_000_000:
        return RetryPolicy(max_attempts=value + 1)
    if isinstance(value, Mapping):
        return _policy(value)
    raise InvalidInput(
        "the option 'retries' must be a whole number, or an object with max_attempts and delays"
    )


def _policy(value: Mapping[str, Any]) -> RetryPolicy:
    unknown = sorted(set(value) - set(RETRY_FIELDS))
    if unknown:
        raise InvalidInput(f"there is no retry setting '{unknown[0]}'; known are {', '.join(RETRY_FIELDS)}")
    fields = dict(value)
    for name in ("initial_delay", "max_delay"):
        if name in fields:
            fields[name] = _duration(fields, name)
    if "on" in fields:
        fields["on"] = tuple(fields["on"])
    return RetryPolicy(**fields)
