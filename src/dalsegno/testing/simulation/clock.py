"""The simulated clock: virtual time plus whatever jumps it was given."""

from __future__ import annotations

from dalsegno.testing.clock import MIDNIGHT
from dalsegno.testing.simulation.loop import VirtualLoop


class SimulatedClock:
    """Satisfies the Clock port: every component of one simulated system shares it (C1)."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._offset = MIDNIGHT

    def now(self) -> float:
        return self._loop.time() + self._offset

    def jump(self, seconds: float) -> None:
        """Forwards or backwards; timers of the loop do not notice, as with a machine's monotonic clock."""
        self._offset += seconds
