"""What may be asked of the system for half an hour on a machine whose speed varies.

The peak is the median of several rounds. Before each round, and every two minutes of the steady load, the bare loop
tells how fast the store is by itself: work in which nothing of the engine or of a broker takes part. Where the store
alone has become slower than it was while the peak was looked for, less is asked, in the same proportion. An engine that
becomes slower by itself has to keep its pace.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import median

from bench.postgres.bare import measure

ROUNDS = 5
ROUNDS_AT_END = 3
MEASURES = 3
CHAINS, STEPS = 500, 10
"""Of the bare loop: a quarter of a second on an ordinary machine."""
SCHEMA = "yardstick"
SHARE = 0.5
"""Of the peak that is asked."""

Speed = Callable[[], Awaitable[float]]
"""Returns the steps per second of the bare loop."""
Crowd = Callable[[], Awaitable[float]]
"""Returns the executions per second with as many in flight as go."""


@dataclass(frozen=True, slots=True)
class Peak:
    """``rates``: executions per second of each round. ``speeds``: the bare loop's steps per second just before."""

    rates: Sequence[float]
    speeds: Sequence[float]

    @property
    def rate(self) -> float:
        return median(self.rates)

    @property
    def speed(self) -> float:
        return median(self.speeds)

    @property
    def per_step(self) -> float:
        """Executions for each step that the bare loop made in the same minute."""
        return median(rate / speed for rate, speed in zip(self.rates, self.speeds, strict=True))

    def asked(self, speed: float) -> float:
        """Return the starts per second for a machine of this speed: never more than half the peak that was found."""
        return SHARE * min(self.rate, self.per_step * speed)


async def find_peak(rounds: int, crowd: Crowd, speed: Speed) -> Peak:
    speeds, rates = [], []
    for _ in range(rounds):
        speeds.append(await speed())
        rates.append(await crowd())
    return Peak(rates, speeds)


async def speed_of(url: str) -> float:
    """Return the steps per second of the bare loop, in a schema of its own that begins empty each time."""
    return median([await measure(url, CHAINS, STEPS, SCHEMA) for _ in range(MEASURES)])
