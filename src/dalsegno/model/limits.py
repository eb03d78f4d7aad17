"""Limits by key: how many may run at once, and how many may start in a period."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

LONGEST_KEY = 500
MOST_STARTS = 100_000
"""Of a rate: the store remembers as many starts per key."""


class Rate(Struct, frozen=True, gc=False):
    """At most ``starts`` in any ``period`` of so many seconds."""

    starts: int
    period: float


class Allowance(Struct, frozen=True, omit_defaults=True, gc=False):
    """None: without a bound."""

    concurrency: int | None = None
    rate: Rate | None = None


UNBOUNDED = Allowance()


class LimitView(Struct, frozen=True):
    """A key as it is now, seen by a token with this ``allowance`` (as the token carries it)."""

    key: str
    rule: Allowance
    """What operators have set."""
    bound: Allowance
    """What holds: the operators' word first, then the token's own."""
    in_use: int
    waiting: int = 0
    """Ready tokens of the key, counted up to a bound."""
    opens_at: float | None = None
    """When its rate allows the next start; None: at once."""
    allowance: str | None = None


_RATE = re.compile(r"\s*([0-9]{1,9})\s*/\s*([0-9]{0,6})\s*(s|m|h|d)[a-z]*\s*", re.IGNORECASE)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_rate(text: str) -> Rate:
    """``10/s``, ``100/m``, ``5/30s``. Raises ValueError that says what is wrong."""
    found = _RATE.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text[:40]}' is not a rate; write it as 10/s, 100/m, 1000/h or 5/30s")
    starts, many, unit = found.groups()
    rate = Rate(int(starts), float(many or 1) * _SECONDS[unit.lower()])
    if not 1 <= rate.starts <= MOST_STARTS or rate.period <= 0:
        raise ValueError(
            f"the rate '{text[:40]}' must allow 1 to {MOST_STARTS:,} starts in a period above zero"
        )
    return rate


def show_rate(rate: Rate) -> str:
    for unit, seconds in reversed(_SECONDS.items()):
        many = rate.period / seconds
        if many == int(many):
            return f"{rate.starts}/{'' if many == 1 else int(many)}{unit}"
    return f"{rate.starts}/{rate.period:g}s"


class Concurrency(Struct, frozen=True, gc=False):
    """What a definition says: a key, or None for one of its own, and what it allows."""

    key: str | None = None
    allows: Allowance = UNBOUNDED


def read_concurrency(value: object) -> Concurrency:
    """A number (how many at once), a text (a key) or ``{key, limit, rate}``. Raises ValueError that says what is
    wrong."""
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
    """As `read_concurrency` reads it."""
    allows = concurrency.allows
    told = {
        "key": concurrency.key,
        "limit": allows.concurrency,
        "rate": show_rate(allows.rate) if allows.rate is not None else None,
    }
    return {name: value for name, value in told.items() if value is not None}
