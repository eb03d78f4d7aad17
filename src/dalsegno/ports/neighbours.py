"""Other processes on the same store, and what one tells the others so that nobody has to ask again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Neighbours(Protocol):
    """Only ever hints: what is not told, or not heard, is found a little later by whoever looks by himself. Telling
    returns at once and never fails; what is told in quick succession goes out together."""

    def look_every(self) -> float:
        """Seconds between two looks of whoever fires timers or delivers, as things are: the less often, the more surely
        he is told."""

    def tell_due(self, at: float) -> None:
        """A commit of this process parked something that comes due at this moment of the ledger's clock."""

    def tell_owed(self) -> None:
        """A commit of this process wrote into the outbox."""

    def tell_ended(self, execution: str) -> None:
        """A commit of this process ended this execution."""

    def tell_tended(self) -> None:
        """This process has just looked for what others left behind, timers that are due among it."""

    def watch_endings(self) -> None:
        """Somebody in this process waits for an execution to end."""

    def hear_schedules(
        self, due: Callable[[float], None], owed: Callable[[], None], tended: Callable[[], None]
    ) -> None:
        """Whom to tell in a process that fires timers, delivers and repairs."""

    def hear_endings(self, ended: Callable[[str], None]) -> None: ...


class Watch(Protocol):
    """Commits of other processes, where a store tells that there was one but not what it changed. Only ever hints: what
    is not told is found a little later by looking. Commits of this process are not told. Callbacks run in the event
    loop that was running when they were given."""

    def hear_commits(self, committed: Callable[[], None]) -> None:
        """Called soon after another process has committed; once for several commits in quick succession."""

    def hear_schedules(self, due: Callable[[float], None], owed: Callable[[], None]) -> None:
        """For a process that fires timers and delivers: when the next timer comes due, as often as another process
        may have changed that, and that the outbox has an entry which no other process has delivered for a moment."""
