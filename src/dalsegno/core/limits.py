"""What keeps a ready token from starting, in words."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from dalsegno.model.limits import LimitView, show_rate
from dalsegno.model.token import TokenView


class HeldBack(Struct, frozen=True):
    """``reason`` goes on after the name of what waits. ``due``: when its rate lets it start."""

    reason: str
    due: float | None = None


def held_back(token: TokenView, limits: Iterable[LimitView]) -> HeldBack | None:
    """Why its limit does not let a ready token start; None if only a worker is missing."""
    if token.state != "ready" or token.limit_key is None:
        return None
    mine = (token.limit_key, token.allowance)
    view = next((each for each in limits if (each.key, each.allowance) == mine), None)
    if view is None:
        return None
    most, rate = view.bound.concurrency, view.bound.rate
    if most is not None and view.in_use >= most:
        return HeldBack(f"waits for a free slot of limit '{view.key}' ({view.in_use} of {most} in use)")
    if rate is not None and view.opens_at is not None:
        return HeldBack(f"waits for its turn at limit '{view.key}' (rate {show_rate(rate)})", view.opens_at)
    return None
