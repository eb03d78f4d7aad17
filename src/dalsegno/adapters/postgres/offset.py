"""The database's clock, as far as this process knows it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

WINDOW = 30.0
"""Seconds for which a look at the database's clock counts at least; it counts for twice as long at most."""


def ticking() -> Callable[[], float]:
    """Seconds that nobody sets: neither an administrator nor NTP. Where the system can tell, those count too during
    which the machine was suspended."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    return time.monotonic


class Offset:
    """An answer tells what the clock was when the database wrote it, and arrives later: the busier both are, the later.
    So of several looks the one that makes the database's clock seem furthest ahead is closest to the truth. Looks are
    forgotten after a while, as the database's clock is set and ours drifts. This machine's time of day plays no part:
    when it is set, nothing happens here."""

    def __init__(self, ticks: Callable[[], float]) -> None:
        self.seconds = 0.0
        """From the ticks to the database's clock. Before the first look it means nothing."""
        self._ticks = ticks
        self._until = -math.inf
        self._best = self._best_before = -math.inf

    def now(self) -> float:
        return self._ticks() + self.seconds

    def saw(self, database_now: float) -> None:
        ticks = self._ticks()
        if ticks >= self._until:
            recent = ticks < self._until + WINDOW
            self._best_before = self._best if recent else -math.inf
            self._best = -math.inf
            self._until = ticks + WINDOW
        self._best = max(self._best, database_now - ticks)
        self.seconds = max(self._best, self._best_before)
