"""Workers of this process that wait for work, and leased tokens that killed workers before.

- A due timer is leased to a waiting worker by the statement that wakes it, so that it needs no claim. While the
  statement runs, the worker has a promise of its outcome and waits for that in any case.
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
        self.tell: Callable[[], None] = lambda: None
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
            self.tell()


def is_suspect(lease: Lease) -> bool:
    return lease.losses >= SUSPECT_LOSSES


class WaitingWorker:
    """One wait of one worker: how many tokens of which queues it takes, the event it waits for, and its last claim."""

    __slots__ = ("asked_at", "limit", "news", "promise", "queues", "worker")

    def __init__(
        self, worker: str, queues: frozenset[str], limit: int, news: asyncio.Event, asked_at: float
    ) -> None:
        self.worker = worker
        self.queues = queues
        self.limit = limit
        self.news = news
        self.asked_at = asked_at
        self.promise: asyncio.Future[list[Lease]] | None = None

    def is_free(self) -> bool:
        """Return True if no work is known yet that it could get."""
        return self.promise is None and not self.news.is_set()

    async def kept_promise(self) -> list[Lease]:
        """Return what was leased to it meanwhile. Raises if that cannot be known."""
        return await self.promise if self.promise is not None else []


class WaitingWorkers:
    def __init__(self, suspects: SuspectTokens | None = None) -> None:
        self.suspects = suspects or SuspectTokens()
        self.tell: Callable[[WaitingWorker], None] = lambda taker: None
        """Called when a worker has got something."""
        self._waiting: dict[WaitingWorker, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, taker: WaitingWorker) -> None:
        self._waiting[taker] = None

    def remove(self, taker: WaitingWorker) -> None:
        """Remove a worker that no longer waits."""
        del self._waiting[taker]
        if taker.promise is not None and not taker.promise.cancel() and not taker.promise.cancelled():
            taker.promise.exception()  # retrieve the exception so that asyncio does not log it

    def room(self, queues: Collection[str]) -> int:
        """Return how many tokens of these queues the waiting workers would take.

        A worker that was woken or has a promise already may have no room left, and does not count.
        """
        return sum(
            taker.limit for taker in self._waiting if taker.is_free() and taker.queues.issuperset(queues)
        )

    def promise(self) -> WaitingWorker | None:
        """Give a promise to the worker that takes most tokens, of those without one."""
        free = [taker for taker in self._waiting if taker.promise is None]
        chosen = max(free, key=lambda taker: taker.limit, default=None)
        if chosen is not None:
            chosen.promise = asyncio.get_running_loop().create_future()
        return chosen

    def keep(self, taker: WaitingWorker, leases: list[Lease]) -> bool:
        """Return True if the worker still waits for the leases; if not, they must be handed back."""
        if taker.promise is None or taker.promise.done():
            return False
        taker.promise.set_result(leases)
        taker.promise = taker.promise if leases else None
        if leases:
            self.tell(taker)
        return True

    def break_promise(self, taker: WaitingWorker, error: Exception) -> None:
        """Fail the promise: tokens may have been leased to the worker without confirmation."""
        if taker.promise is not None and not taker.promise.done():
            taker.promise.set_exception(error)
            self.tell(taker)
