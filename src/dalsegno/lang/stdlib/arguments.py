"""Checked access to a library function's arguments; each error names the function and the expected argument.

Values of the options of ``Task.with({…})`` and its siblings.

They are read when a script gives them, and again when the engine uses them. Every reader raises a ValueError that says
what the option must be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from dalsegno.lang.durations import parse_duration
from dalsegno.lang.errors import ScriptThrow, wrong_argument
from dalsegno.lang.runtime.promises import Promise
from dalsegno.lang.values.kinds import Builtin, FunctionValue, Host, Value, is_number, kind_of
from dalsegno.model.limits import Concurrency, read_concurrency


@dataclass(frozen=True, slots=True)
class Method:
    """A library function called on a value; ``call`` gets the value and the arguments."""

    call: Callable[[Host, Value, list[Value]], Value]
    least: int = 0
    most: int = 0


class Arguments(Struct, frozen=True, gc=False):
    """The arguments of one call of the function ``name``; missing ones are null."""

    name: str
    given: list[Value]

    def get(self, position: int) -> Value:
        return self.given[position] if position < len(self.given) else None

    def wrong(self, position: int, wanted: str) -> ScriptThrow:
        found = kind_of(self.get(position))
        return wrong_argument(f"{self.name}() needs {wanted} as argument {position + 1}, not {found}")

    def text(self, position: int, default: str | None = None) -> str:
        value = self.get(position)
        if value is None and default is not None:
            return default
        if type(value) is Promise:
            return value.id
        if not isinstance(value, str):
            raise self.wrong(position, "a string")
        return value

    def number(self, position: int) -> int | float:
        value = self.get(position)
        if not is_number(value):
            raise self.wrong(position, "a number")
        number: int | float = value
        return number

    def integer(self, position: int, default: int | None = None) -> int:
        """Return an integer; fractions are cut off, infinities become very large."""
        if self.get(position) is None and default is not None:
            return default
        number = self.number(position)
        if isinstance(number, float) and not math.isfinite(number):
            return 0 if math.isnan(number) else int(math.copysign(2**62, number))
        return int(number)

    def list(self, position: int) -> list[Value]:
        value = self.get(position)
        if not isinstance(value, list):
            raise self.wrong(position, "a list")
        return value

    def object(self, position: int) -> dict[str, Value]:
        value = self.get(position)
        if not isinstance(value, dict):
            raise self.wrong(position, "an object")
        return value

    def function(self, position: int) -> Value:
        value = self.get(position)
        if not isinstance(value, (FunctionValue, Builtin)):
            raise self.wrong(position, "a function")
        return value


def slice_bounds(arguments: Arguments, length: int) -> tuple[int, int]:
    """Return start and end of ``slice(start, end)``: negative numbers count from the end."""
    start = arguments.integer(0, 0)
    end = arguments.integer(1, length)
    start = max(0, length + start) if start < 0 else min(start, length)
    end = max(0, length + end) if end < 0 else min(end, length)
    return start, max(start, end)


# -- options -------------------------------------------------------------------------------------------------


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
