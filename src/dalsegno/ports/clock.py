"""Time as a port, so that tests can control it."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """C1: ``now`` is Unix time in seconds; every component of one engine shares one clock."""

    def now(self) -> float: ...
