"""A clock that stands still until a test moves it."""

from __future__ import annotations

MIDNIGHT = 1_700_006_400.0
"""15 November 2023, 00:00 UTC: a round moment to start from."""


class FakeClock:
    """Satisfies the Clock port. Shared by every component of one engine, as guarantee C1 asks."""

    def __init__(self, now: float = MIDNIGHT) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> float:
        """Moves on and returns the new time."""
        self._now += seconds
        return self._now

    def set(self, now: float) -> None:
        """Jumps, backwards too: machines' clocks do."""
        self._now = now
