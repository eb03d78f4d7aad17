"""Commits of other processes, where a store can tell that there was one but not what it changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Watch(Protocol):
    """Only ever hints: what is not told is found a little later by looking. Commits of this process are not told.
    Callbacks run in the event loop that was running when they were given."""

    def hear_commits(self, committed: Callable[[], None]) -> None:
        """Called soon after another process has committed; once for several commits in quick succession."""

    def hear_schedules(self, due: Callable[[float], None], owed: Callable[[], None]) -> None:
        """For a process that fires timers and delivers: when the next timer comes due, as often as another process
        may have changed that, and that the outbox has an entry which no other process has delivered for a moment."""
