"""``Math.*``."""

from __future__ import annotations

import math
from collections.abc import Callable

from dalsegno.lang.runtime.operators import power
from dalsegno.lang.stdlib.arguments import Arguments
from dalsegno.lang.values.kinds import Builtin, Host, Value, as_integer


def round_half_up(number: int | float) -> int | float:
    """Round to the nearest integer, halves toward +∞."""
    if isinstance(number, int) or not math.isfinite(number):
        return number
    whole = math.floor(number)
    return whole + (number - whole >= 0.5)


def _whole(rounding: Callable[[float], int]) -> Callable[[int | float], int | float]:
    return lambda number: number if not math.isfinite(number) else rounding(number)


def _real(function: Callable[[float], float]) -> Callable[[int | float], int | float]:
    """Wrap a function of the reals: NaN where it is undefined, Infinity where it overflows."""

    def apply(number: int | float) -> int | float:
        try:
            return as_integer(function(number))
        except ValueError:
            return -math.inf if number == 0 and function in (math.log, math.log2, math.log10) else math.nan
        except OverflowError:
            return math.inf

    return apply


def _sign(number: int | float) -> int | float:
    return number if number == 0 or math.isnan(number) else (1 if number > 0 else -1)


def _one(name: str, function: Callable[[int | float], Value]) -> Builtin:
    return Builtin(name, lambda host, given: function(Arguments(name, given).number(0)), 1, 1)


def _numbers(name: str, host: Host, given: list[Value]) -> list[int | float]:
    """Return the numbers: several arguments, or one list of them."""
    values = given[0] if len(given) == 1 and isinstance(given[0], list) else given
    host.meter.work(len(values))
    arguments = Arguments(name, values)
    return [arguments.number(position) for position in range(len(values))]


def _extreme(name: str, choose: Callable[[list[int | float]], int | float], empty: float) -> Builtin:
    def call(host: Host, given: list[Value]) -> Value:
        numbers = _numbers(name, host, given)
        if any(math.isnan(number) for number in numbers):
            return math.nan
        return choose(numbers) if numbers else empty

    return Builtin(name, call)


def _hypot(host: Host, given: list[Value]) -> Value:
    return as_integer(math.hypot(*_numbers("Math.hypot", host, given)))


def _atan2(_host: Host, given: list[Value]) -> Value:
    arguments = Arguments("Math.atan2", given)
    return as_integer(math.atan2(arguments.number(0), arguments.number(1)))


_OF_ONE: dict[str, Callable[[int | float], Value]] = {
    "abs": abs,
    "sign": _sign,
    "round": round_half_up,
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "trunc": _whole(math.trunc),
    **{
        name: _real(getattr(math, name))
        for name in (
            "sqrt",
            "cbrt",
            "exp",
            "log",
            "log2",
            "log10",
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
        )
    },
}

FUNCTIONS = [
    *(_one(f"Math.{name}", function) for name, function in _OF_ONE.items()),
    _extreme("Math.max", max, -math.inf),
    _extreme("Math.min", min, math.inf),
    Builtin("Math.pow", lambda host, given: power(host, given[0], given[1]), 2, 2),
    Builtin("Math.hypot", _hypot),
    Builtin("Math.atan2", _atan2, 2, 2),
]
CONSTANTS = {"Math.PI": math.pi, "Math.E": math.e}
