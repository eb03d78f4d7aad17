"""The broker port, which brings ready tokens to workers, and the other processes on the same store.

A broker only gives hints: the ledger decides what is ready. Processes exchange hints instead of polling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken, Transition


class Broker(Protocol):
    """Announces ready tokens and hands out leases.

    * **B1 at least once**: an announced token reaches some worker that serves its queue, maybe several times and
      in any order; the worker gets a lease from the ledger, so a duplicate yields nothing.
    * **B2 hint only**: losing every announcement loses no work; the reconciler announces again.
    """

    def committed(self, transition: Transition) -> None:
        """Note a commit of this process that made tokens ready, just before they are announced: a broker whose
        messages describe a token finds here what the commit has spawned.
        """

    async def announce(self, tokens: Sequence[ReadyToken]) -> None: ...

    async def offer(self, tokens: Sequence[ReadyToken]) -> None:
        """Announce tokens to other processes, if they are known to be others: this process cannot run them."""

    async def take(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        """Lease at most ``limit`` ready tokens; wait until there is one."""

    def settled(self, lease: Lease) -> None:
        """Note that this process no longer runs a leased token: its step is committed, or the lease is handed back,
        and what that made ready was announced before. A broker that holds the token's message acknowledges it.
        """

    async def close(self) -> None: ...


# -- other processes on the same store, and the hints they exchange instead of polling -----------------------


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

    def announce_answered(self, execution: str) -> None:
        """Report that a commit of this process answered a request to this execution."""

    def announce_round(self) -> None:
        """Report that this process has just polled for overdue work of others, due timers included."""

    def watch_endings(self) -> None:
        """Ask for hints about endings and answers: this process waits for an execution to end or to answer."""

    def on_upkeep(
        self, due: Callable[[float], None], outbox: Callable[[], None], round: Callable[[], None]
    ) -> None:
        """Register the callbacks of a process that fires timers, delivers and repairs."""

    def on_ending(self, ended: Callable[[str], None]) -> None: ...

    def on_answer(self, answered: Callable[[str], None]) -> None: ...


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
