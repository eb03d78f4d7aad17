"""Tasks that no living worker has: a token that needs one sleeps for growing times, and a worker that has the task
wakes it at once.

The process that puts a token to sleep records what the token needs. Workers read these records when they start, and
at intervals.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Container
from zlib import crc32

from msgspec import Struct

from dalsegno.engine.operations.troubles import KIND, StuckReason, decode
from dalsegno.model.effect import HurryToken
from dalsegno.model.transition import Outcome, Transition
from dalsegno.ports.records import Record, Records

FRESH = 1.0
"""Seconds for which the absence of a task is cached, so that not every token that needs it queries the store."""
FIRST_PAUSE = 2.0
LONGEST_PAUSE = 300.0
LASTING = 5.0
"""Seconds after which a missing task is reported. Before, its only worker may be restarting."""
REMEMBERED = 10_000
"""Missing tasks of which this process remembers since when."""
LOOKS = (1.0, 4.0, 15.0)
"""Pauses between the first checks of a worker: another process may just have put a token to sleep."""
LOOK_EVERY = 60.0
AT_ONCE = 500


class _Absence(Struct):
    since: float
    asked: float


class MissingTasks:
    """What no worker had at the last check of this process, by offer and queue."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._missing: OrderedDict[tuple[str, str], _Absence] = OrderedDict()

    def known_for(self, offer: str, queue: str) -> float | None:
        """Return the seconds for which it has been missing; None if that was not checked recently."""
        found = self._missing.get((offer, queue))
        now = self._now()
        return None if found is None or now >= found.asked + FRESH else now - found.since

    def note(self, offer: str, queue: str) -> float:
        """Note that no worker has it. Return the seconds for which it has been missing, 0 if that is new."""
        now = self._now()
        found = self._missing.setdefault((offer, queue), _Absence(now, now))
        found.asked = now
        self._missing.move_to_end((offer, queue))
        if len(self._missing) > REMEMBERED:
            self._missing.popitem(last=False)
        return now - found.since

    def found(self, offer: str, queue: str) -> None:
        self._missing.pop((offer, queue), None)


def pause_before_next_try(missing_for: float, token: str) -> float:
    """Return half the time for which the task has been missing, with jitter by token so that tokens do not return all
    at once.
    """
    pause = min(max(missing_for / 2, FIRST_PAUSE), LONGEST_PAUSE)
    return pause * (0.75 + crc32(token.encode()) % 1000 / 2000)


class LackingTokensWaker:
    """The role that wakes tokens which sleep because no worker had their task, if this worker has it."""

    def __init__(
        self,
        records: Records,
        commit: Callable[[Transition], Awaitable[Outcome]],
        offers: Callable[[], Collection[str]],
        is_ours: Callable[[StuckReason], bool],
    ) -> None:
        """``is_ours``: return True if this process serves the token's queue, or its execution."""
        self._records = records
        self._commit = commit
        self._offers = offers
        self._is_ours = is_ours

    async def run(self) -> None:
        await self.look()
        for pause in LOOKS:
            await asyncio.sleep(pause)
            await self.look()
        while True:
            await asyncio.sleep(LOOK_EVERY)
            await self.look()

    async def look(self) -> None:
        offers, after = frozenset(self._offers()), ""
        while page := await self._records.page(KIND, after, AT_ONCE):
            found = [(record, decode(record.data).trouble) for record in page]
            await asyncio.gather(*(self._wake(*each) for each in found if self._can_run(each[1], offers)))
            after = page[-1].id

    def _can_run(self, trouble: StuckReason, offers: Container[str]) -> bool:
        return bool(trouble.needs) and trouble.needs in offers and self._is_ours(trouble)

    async def _wake(self, record: Record, trouble: StuckReason) -> None:
        """Remove the record, then wake the token: if it is put to sleep again, a new record is written."""
        await self._records.remove(KIND, record.id)
        await self._commit(hurry_transition(trouble))


def hurry_transition(trouble: StuckReason) -> Transition:
    """Return the transition that runs the token at once, unless it has run meanwhile."""
    return Transition(trouble.execution, (HurryToken(trouble.id, trouble.attempt or 1),))
