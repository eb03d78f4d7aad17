"""Other processes on the same store, and the hints they exchange instead of polling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Neighbours(Protocol):
    """Hints between processes.

    A hint that is not sent or not received is made up for by polling a little later. Sending returns at once and
    never fails; hints in quick succession are sent together.
    """

    def look_every(self) -> float:
        """Return the seconds between two polls of a timer or outbox loop: the more reliable the hints, the longer."""

    def announce_due(self, at: float) -> None:
        """Report that a commit of this process parked something that comes due at this moment of the ledger's
        clock.
        """

    def announce_outbox(self) -> None:
        """Report that a commit of this process wrote into the outbox."""

    def announce_ended(self, execution: str) -> None:
        """Report that a commit of this process ended this execution."""

    def announce_round(self) -> None:
        """Report that this process has just polled for overdue work of others, due timers included."""

    def watch_endings(self) -> None:
        """Ask for hints about endings: this process waits for an execution to end."""

    def on_upkeep(
        self, due: Callable[[float], None], outbox: Callable[[], None], round: Callable[[], None]
    ) -> None:
        """Register the callbacks of a process that fires timers, delivers and repairs."""

    def on_ending(self, ended: Callable[[str], None]) -> None: ...


class Watch(Protocol):
    """Commits of other processes, for a store that reports that there was a commit but not what it changed.

    These are hints only: a missed one is made up for by polling a little later. Commits of this process are not
    reported. Callbacks run in the event loop that was running when they were registered.
    """

    def on_commit(self, committed: Callable[[], None]) -> None:
        """Register a callback for commits of other processes; several in quick succession cause one call."""

    def on_upkeep(self, due: Callable[[float], None], outbox: Callable[[], None]) -> None:
        """Register the callbacks of a process that fires timers and delivers.

        ``due`` receives when the next timer comes due, whenever another process may have changed that. ``outbox``
        reports that the outbox has an entry which no other process has delivered for a moment.
        """
