"""Limits by key: how many may run concurrently, and how many may start in a period."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

LONGEST_KEY = 500
MOST_STARTS = 100_000
"""Largest rate: the store keeps as many starts per key."""


class Rate(Struct, frozen=True, gc=False):
    """At most ``starts`` in any ``period`` of so many seconds."""

    starts: int
    period: float


class Allowance(Struct, frozen=True, omit_defaults=True, gc=False):
    """The bounds of a limit. None: unbounded."""

    concurrency: int | None = None
    rate: Rate | None = None


UNBOUNDED = Allowance()


class LimitView(Struct, frozen=True):
    """The current state of a key, as it applies to a token with this ``allowance``."""

    key: str
    rule: Allowance
    """The operators' rule."""
    bound: Allowance
    """The bounds that apply: the operators' rule first, then the token's own."""
    in_use: int
    waiting: int = 0
    """Ready tokens of the key, counted up to a bound."""
    opens_at: float | None = None
    """When its rate allows the next start; None: at once."""
    allowance: str | None = None


_RATE = re.compile(
    r"\s*([0-9]{1,9})\s*/\s*([0-9]{0,6})\s*"
    r"(?:(ms|milliseconds?)|(s|secs?|seconds?)|(m|mins?|minutes?)|(h|hrs?|hours?)|(d|days?))\s*",
    re.IGNORECASE,
)
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_rate(text: str) -> Rate:
    """Parse ``10/s``, ``100/m``, ``5/30s``, ``2/500ms``. Raises ValueError that says what is wrong."""
    found = _RATE.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text[:40]}' is not a rate; write it as 10/s, 100/m, 1000/h, 5/30s or 2/500ms")
    starts, many, *units = found.groups()
    unit = next(length for length, word in zip(_MILLISECONDS.values(), units, strict=True) if word)
    rate = Rate(int(starts), int(many or 1) * unit / 1000)
    if not 1 <= rate.starts <= MOST_STARTS or rate.period <= 0:
        raise ValueError(
            f"the rate '{text[:40]}' must allow 1 to {MOST_STARTS:,} starts in a period above zero"
        )
    return rate


def show_rate(rate: Rate) -> str:
    period = round(rate.period * 1000)
    unit, length = next(each for each in reversed(_MILLISECONDS.items()) if period % each[1] == 0)
    return f"{rate.starts}/{'' if period == length else period // length}{unit}"


class Concurrency(Struct, frozen=True, gc=False):
    """A definition's limit: its key, or None for one of its own, and its allowance."""

    key: str | None = None
    allows: Allowance = UNBOUNDED


def read_concurrency(value: object) -> Concurrency:
    """Read a number (concurrency), a text (a key) or ``{key, limit, rate}``. Raises ValueError."""
    if isinstance(value, str):
        return Concurrency(_key(value))
    if not isinstance(value, Mapping):
        return Concurrency(None, Allowance(_limit(value)))
    unknown = sorted(set(map(str, value)) - {"key", "limit", "rate"})
    if unknown:
        raise ValueError(f"there is no '{unknown[0]}' in it; known are key, limit and rate")
    key, limit, rate = value.get("key"), value.get("limit"), value.get("rate")
    if limit is None and rate is None and key is None:
        raise ValueError("give it a 'limit', a 'rate', or a 'key' for which operators set them")
    if rate is not None and not isinstance(rate, str):
        raise ValueError("'rate' must be a text as 10/s")
    allows = Allowance(
        _limit(limit) if limit is not None else None, parse_rate(rate) if rate is not None else None
    )
    return Concurrency(_key(key) if key is not None else None, allows)


def _limit(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("'limit' must be a whole number, at least 1")
    return value


def _key(value: object) -> str:
    if not isinstance(value, str) or not value or len(value) > LONGEST_KEY:
        raise ValueError(f"'key' must be a text of 1 to {LONGEST_KEY} characters")
    return value


def as_option(concurrency: Concurrency) -> dict[str, object]:
    """Return the option in the form that `read_concurrency` reads."""
    allows = concurrency.allows
    given = {
        "key": concurrency.key,
        "limit": allows.concurrency,
        "rate": show_rate(allows.rate) if allows.rate is not None else None,
    }
    return {name: value for name, value in given.items() if value is not None}
