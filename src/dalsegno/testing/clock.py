"""A clock that advances only when a test moves it."""

from __future__ import annotations

MIDNIGHT = 1_700_006_400.0
"""15 November 2023, 00:00 UTC."""


class FakeClock:
    """Implements the Clock port. All components of one engine share it, as guarantee C1 requires."""

    def __init__(self, now: float = MIDNIGHT) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> float:
        """Move the clock forward and return the new time."""
        self._now += seconds
        return self._now

    def set(self, now: float) -> None:
        """Set the clock. It may go backwards, as machine clocks do."""
        self._now = now
