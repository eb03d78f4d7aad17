"""Values of the options of ``Task.with({…})`` and its siblings.

They are read when a script gives them, and again when the engine uses them. Every reader raises a ValueError that says
what the option must be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dalsegno.lang.durations import parse_duration
from dalsegno.model.limits import Concurrency, read_concurrency

HIGHEST_PRIORITY = 999_999
"""Resumes of scripts have a higher priority than any task."""
MOST_RETRIES = 1_000_000


def read_text(value: Any) -> str:
    if isinstance(value, str) and value:
        return value
    raise ValueError("must be a text")


def read_priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > HIGHEST_PRIORITY:
        limit = f"{HIGHEST_PRIORITY:,}"
        raise ValueError(f"must be a whole number from -{limit} to {limit}")
    return value


def read_duration(value: Any) -> float:
    try:
        return parse_duration(value)
    except TypeError as error:
        raise ValueError(str(error)) from None


def read_retries(value: Any) -> int | Mapping[str, Any]:
    """Read the maximum number of retries, or a whole policy, which the engine reads."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_RETRIES:
        return value
    raise ValueError("must be a whole number, or an object with max_attempts and delays")


def read_limit(value: Any) -> Concurrency:
    try:
        return read_concurrency(value)
    except ValueError as error:
        raise ValueError(f"is not valid: {error}") from None


def read_version(value: Any) -> int | str:
    if isinstance(value, int | str) and not isinstance(value, bool):
        return value
    raise ValueError("must be a version's number or an alias")


def read_tags(value: Any) -> Mapping[str, str]:
    if isinstance(value, Mapping) and all(isinstance(tag, str) for tag in value.values()):
        return value
    raise ValueError("must be an object of texts")


READERS: dict[str, Callable[[Any], Any]] = {
    "queue": read_text,
    "key": read_text,
    "priority": read_priority,
    "timeout": read_duration,
    "delay": read_duration,
    "retry": read_retries,
    "retries": read_retries,
    "concurrency": read_limit,
    "version": read_version,
    "tags": read_tags,
}


def read_option(name: str, value: Any) -> Any:
    """Read an option. None, which means not given, stays None. Raise ValueError that names the option."""
    if value is None:
        return None
    try:
        return READERS[name](value)
    except ValueError as error:
        raise ValueError(f"the option '{name}' {error}") from None
