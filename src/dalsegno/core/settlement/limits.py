"""Limits by key: the rule for a token, and whether it leaves room for one more.

A slot is a lease of a token with that key, or an execution that holds one from its beginning to its end. Stores
find both by an index and keep no counter. So a slot is free exactly when its token is no longer leased or its
execution has ended, whichever process crashed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import msgspec
from msgspec import Struct

from dalsegno.model.limits import UNBOUNDED, Allowance, LimitView

decode = msgspec.json.Decoder(Allowance).decode
encode = msgspec.json.Encoder().encode

NthStart = Callable[[int], float | None]
"""The time of the n-th last start of a key; None if there were fewer, or they no longer count."""


def stored_allowance(allowance: Allowance | None) -> str | None:
    return encode(allowance).decode() if allowance is not None else None


def bound_of(own: str | None, rule: Allowance) -> Allowance:
    """Return the bounds: the operators' rule first, number by number, else the token's definition."""
    declared = _declared(own) if own is not None else UNBOUNDED
    return Allowance(
        rule.concurrency if rule.concurrency is not None else declared.concurrency,
        rule.rate if rule.rate is not None else declared.rate,
    )


@lru_cache(1024)
def _declared(own: str) -> Allowance:
    return decode(own)


class Room(Struct, frozen=True, gc=False):
    """Room for another start. ``opens_at``: when there is room, if only a rate is exhausted."""

    free: bool
    opens_at: float | None = None


FREE = Room(True)
FULL = Room(False)


def room(bound: Allowance, in_use: int, nth_start: NthStart, now: float) -> Room:
    if bound.concurrency is not None and in_use >= bound.concurrency:
        return FULL
    opens_at = next_start(bound, nth_start)
    if opens_at is not None and opens_at > now:
        return Room(False, opens_at)
    return FREE


def next_start(bound: Allowance, nth_start: NthStart) -> float | None:
    """Return when the rate allows another start: a period after the start that is so many starts ago."""
    rate = bound.rate
    if rate is None:
        return None
    began = nth_start(rate.starts)
    return began + rate.period if began is not None else None


def limit_view(
    key: str, own: str | None, rule: Allowance, in_use: int, waiting: int, nth_start: NthStart, now: float
) -> LimitView:
    bound = bound_of(own, rule)
    opens_at = next_start(bound, nth_start)
    later = opens_at if opens_at is not None and opens_at > now else None
    return LimitView(key, rule, bound, in_use, waiting, later, own)
