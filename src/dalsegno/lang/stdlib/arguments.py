"""Checked access to a library function's arguments; each error names the function and the expected argument."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dalsegno.lang.errors import ScriptThrow, wrong_argument
from dalsegno.lang.runtime.promises import Promise
from dalsegno.lang.values.kinds import Builtin, FunctionValue, Host, Value, is_number, kind_of


@dataclass(frozen=True, slots=True)
class Method:
    """A library function called on a value; ``call`` gets the value and the arguments."""

    call: Callable[[Host, Value, list[Value]], Value]
    least: int = 0
    most: int = 0


@dataclass(frozen=True, slots=True)
class Arguments:
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
