"""Workers of this process that wait for work, and leased tokens that killed workers before.

- A due timer is leased to a waiting worker by the statement that wakes it, so that it needs no claim. While the
  statement runs, the worker has a reservation of its outcome and waits for that in any case.
- A worker holds at most one token that killed workers before, so a claim leaves others behind although more were
  requested. The end of such a lease makes nothing ready and would not be announced: therefore waiting workers are
  woken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence

from dalsegno.adapters.postgres.commit.read_set import Key
from dalsegno.core.settlement.claims import SUSPECT_LOSSES
from dalsegno.model.token import Lease
from dalsegno.model.transition import AlreadyApplied, Applied, Outcome, Stale, Transition


class SuspectTokens:
    def __init__(self) -> None:
        self.on_ended: Callable[[], None] = lambda: None
        """Called when such a lease has ended."""
        self._leased: set[Key] = set()

    def note(self, leases: Iterable[Lease]) -> None:
        """Record the suspects among the leases."""
        self._leased.update((lease.execution, lease.token) for lease in leases if is_suspect(lease))

    def settled(self, batch: Sequence[Transition], outcomes: Sequence[Outcome]) -> None:
        """Record the outcome of steps. One that was deferred or refused is still under way."""
        if self._leased:
            over = (Applied, AlreadyApplied, Stale)
            steps = zip(batch, outcomes, strict=True)
            self._end(
                {
                    (step.execution, step.token)
                    for step, outcome in steps
                    if step.token and type(outcome) in over
                }
            )

    def handed_back(self, leases: Iterable[Lease]) -> None:
        if self._leased:
            self._end({(lease.execution, lease.token) for lease in leases})

    def _end(self, keys: Collection[Key]) -> None:
        if not self._leased.isdisjoint(keys):
            self._leased.difference_update(keys)
            self.on_ended()


def is_suspect(lease: Lease) -> bool:
    return lease.losses >= SUSPECT_LOSSES


class WaitingWorker:
    """One wait of one worker: how many tokens of which queues it takes, the event it waits for, and its last claim."""

    __slots__ = ("asked_at", "changed", "limit", "queues", "reservation", "worker")

    def __init__(
        self, worker: str, queues: frozenset[str], limit: int, changed: asyncio.Event, asked_at: float
    ) -> None:
        self.worker = worker
        self.queues = queues
        self.limit = limit
        self.changed = changed
        self.asked_at = asked_at
        self.reservation: asyncio.Future[list[Lease]] | None = None

    def is_free(self) -> bool:
        """Return True if no work is known yet that it could get."""
        return self.reservation is None and not self.changed.is_set()

    async def reserved(self) -> list[Lease]:
        """Return the leases it was given meanwhile. Raises if they cannot be determined."""
        return await self.reservation if self.reservation is not None else []


class WaitingWorkers:
    def __init__(self, suspects: SuspectTokens | None = None) -> None:
        self.suspects = suspects or SuspectTokens()
        self.on_leased: Callable[[WaitingWorker], None] = lambda waiting: None
        """Called when a worker has got something."""
        self._waiting: dict[WaitingWorker, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, waiting: WaitingWorker) -> None:
        self._waiting[waiting] = None

    def remove(self, waiting: WaitingWorker) -> None:
        """Remove a worker that no longer waits."""
        del self._waiting[waiting]
        if (
            waiting.reservation is not None
            and not waiting.reservation.cancel()
            and not waiting.reservation.cancelled()
        ):
            waiting.reservation.exception()  # retrieve the exception so that asyncio does not log it

    def room(self, queues: Collection[str]) -> int:
        """Return how many tokens of these queues the waiting workers would take.

        A worker that was woken or has a reservation already may have no room left, and does not count.
        """
        return sum(
            waiting.limit
            for waiting in self._waiting
            if waiting.is_free() and waiting.queues.issuperset(queues)
        )

    def reserve(self) -> WaitingWorker | None:
        """Reserve leases for the waiting worker that takes most tokens, of those without a reservation."""
        free = [waiting for waiting in self._waiting if waiting.reservation is None]
        chosen = max(free, key=lambda waiting: waiting.limit, default=None)
        if chosen is not None:
            chosen.reservation = asyncio.get_running_loop().create_future()
        return chosen

    def keep(self, waiting: WaitingWorker, leases: list[Lease]) -> bool:
        """Return True if the worker still waits for the leases; if not, they must be handed back."""
        if waiting.reservation is None or waiting.reservation.done():
            return False
        waiting.reservation.set_result(leases)
        waiting.reservation = waiting.reservation if leases else None
        if leases:
            self.on_leased(waiting)
        return True

    def fail_reservation(self, waiting: WaitingWorker, error: Exception) -> None:
        """Fail the reservation: tokens may have been leased to the worker without confirmation."""
        if waiting.reservation is not None and not waiting.reservation.done():
            waiting.reservation.set_exception(error)
            self.on_leased(waiting)
