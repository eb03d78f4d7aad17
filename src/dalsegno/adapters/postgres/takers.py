"""Workers of this process that found nothing and wait.

Whoever wakes due timers here leases them to such a worker in the same statement, so that they need no claim. While the
statement is under way the worker is promised its outcome, and waits for that whatever else happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from dalsegno.adapters.postgres.suspects import Suspects
from dalsegno.model.token import Lease


class Taker:
    """One wait of one worker: how many tokens of which queues it would take, the news it waits for, and when it asked
    last."""

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
        """Nothing is known yet that it could be given."""
        return self.promise is None and not self.news.is_set()

    async def kept_promise(self) -> list[Lease]:
        """What was leased to it meanwhile. Raises if that cannot be known."""
        return await self.promise if self.promise is not None else []


class Takers:
    def __init__(self, suspects: Suspects | None = None) -> None:
        self.suspects = suspects or Suspects()
        self.tell: Callable[[Taker], None] = lambda taker: None
        """Called when a taker has got something."""
        self._waiting: dict[Taker, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, taker: Taker) -> None:
        self._waiting[taker] = None

    def remove(self, taker: Taker) -> None:
        """Nobody waits for its promise any more."""
        del self._waiting[taker]
        if taker.promise is not None and not taker.promise.cancel() and not taker.promise.cancelled():
            taker.promise.exception()  # else asyncio complains that nobody asked for it

    def room(self, queues: Collection[str]) -> int:
        """How many tokens of these queues those who wait here would take. One that has heard of others before, or is
        promised some, may have no room left for these."""
        return sum(
            taker.limit for taker in self._waiting if taker.is_free() and taker.queues.issuperset(queues)
        )

    def promise(self) -> Taker | None:
        """The one that would take most of those who are promised nothing yet."""
        free = [taker for taker in self._waiting if taker.promise is None]
        chosen = max(free, key=lambda taker: taker.limit, default=None)
        if chosen is not None:
            chosen.promise = asyncio.get_running_loop().create_future()
        return chosen

    def keep(self, taker: Taker, leases: list[Lease]) -> bool:
        """Whether it still waits for them; if not, somebody has to hand them back."""
        if taker.promise is None or taker.promise.done():
            return False
        taker.promise.set_result(leases)
        taker.promise = taker.promise if leases else None
        if leases:
            self.tell(taker)
        return True

    def break_promise(self, taker: Taker, error: Exception) -> None:
        """It may have got something without anybody's knowing."""
        if taker.promise is not None and not taker.promise.done():
            taker.promise.set_exception(error)
            self.tell(taker)
