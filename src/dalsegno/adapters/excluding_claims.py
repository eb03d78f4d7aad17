"""Claims that pass over some workflows; the same for every adapter.

A workflow that is passed over may have very many ready tokens, in front of those of others. A walk through all of
them is made only at times; in between, looking at tokens that became ready since is enough. A store that knows when
nothing can have become ready is not asked again until it may have, or a moment has passed.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeAlias

from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken

LATE = 2.0
"""Seconds after its ``ready_at`` within which a token may become visible: clocks differ, and commits take time."""
WALK_EVERY = 1.0
WALK_SHARE = 20
"""A walk through all ready tokens happens every second at most, and takes at most a twentieth of the time."""

QUIET = 0.25
"""Seconds after which a store is asked again that has no news since its last answer, which was empty."""

QUESTIONS = 8
"""Questions remembered per worker."""

PRIORITY, READY_AT = 3, 4
"""Columns of a row: a claim compares them for every token it meets, so they are read by position.
"""
Row: TypeAlias = tuple[Any, ...]
Question: TypeAlias = tuple[frozenset[str], frozenset[str], bool]
"""Queues, workflows that are passed over, and True if only steps that may run long are."""
Look: TypeAlias = Callable[
    [Sequence[str], Collection[str], bool, int, float], Awaitable[tuple[Sequence[Row], Sequence[Row]]]
]
LeaseNamed: TypeAlias = Callable[[str, Sequence[ReadyToken]], Awaitable[list[Lease]]]


async def lease_in_turn(
    lease: LeaseNamed, worker: str, ready: Sequence[ReadyToken], limit: int
) -> list[Lease]:
    """Lease at most ``limit`` of the tokens. One whose limit is used up, or that another worker took, is skipped."""
    leases: list[Lease] = []
    while ready and len(leases) < limit:
        room = limit - len(leases)
        leases += await lease(worker, ready[:room])
        ready = ready[room:]
    return leases


class Known:
    """The state of one question."""

    __slots__ = ("news", "quiet_until", "since", "walk_at")

    def __init__(self) -> None:
        self.news = -1
        """The store's number when it had nothing for this question."""
        self.quiet_until = 0.0
        self.since = 0.0
        """All tokens that became ready before and are still ready belong to the workflows that are passed over."""
        self.walk_at = 0.0


class ExcludingClaims:
    """Claims tokens of the workflows that are not passed over, for one ledger.

    ``look`` takes queues, workflows, True if only steps that may run long are passed over, a number and a time. It
    returns the first ready tokens without a limit key that became ready since, at most so many of each queue, and
    the first of each line of a key that may move. A row has the fields of a ReadyToken, and since when it is
    ready. ``news`` returns a number that changes after each commit that may make tokens ready, or let ready ones be
    claimed.
    """

    def __init__(
        self,
        look: Look,
        lease: LeaseNamed,
        now: Callable[[], float],
        news: Callable[[], int] | None = None,
    ) -> None:
        self._look = look
        self._lease = lease
        self._now = now
        self._news = news
        self._known: OrderedDict[Question, Known] = OrderedDict()

    async def claim(
        self, worker: str, queues: Sequence[str], limit: int, pass_over: Collection[str], *, only_long: bool
    ) -> list[Lease]:
        now, began = self._now(), time.monotonic()
        known = self._about((frozenset(queues), frozenset(pass_over), only_long))
        news = self._news() if self._news is not None else 0  # before the look: what comes during it is news
        if news == known.news and began < known.quiet_until:
            return []
        is_walk = now >= known.walk_at or now < known.since
        since = 0.0 if is_walk else known.since
        plain, in_line = await self._look(queues, pass_over, only_long, limit, since)
        known.since = now - LATE if len(plain) < limit else min(row[READY_AT] for row in plain)
        if is_walk:
            known.walk_at = now + max(WALK_EVERY, WALK_SHARE * (time.monotonic() - began))
        if self._news is not None and not plain and not in_line:
            known.news, known.quiet_until = news, began + QUIET
        found = sorted((*plain, *in_line), key=lambda row: (-row[PRIORITY], row[READY_AT]))
        return await lease_in_turn(self._lease, worker, [ReadyToken(*row[:READY_AT]) for row in found], limit)

    def _about(self, asked: Question) -> Known:
        """Return the state of a question. A worker asks several in turn."""
        known = self._known.setdefault(asked, Known())
        self._known.move_to_end(asked)
        if len(self._known) > QUESTIONS:
            self._known.popitem(last=False)
        return known
