"""Starts as one statement, for executions that are not known to exist.

New executions need no stored rows, so nothing is read ahead or locked. The statement creates those executions that
no other process has created or is creating; the others take the way that reads first.

A caller may start an execution in a transaction of its own. Until it ends that, it is unknown whether the
execution exists, and an insert of the same id would wait with everything else of its batch. So the caller holds a
lock named after the id. A commit does not wait for it: a start that meets one is deferred, and the others are
committed without it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from time import monotonic

from dalsegno.adapters.postgres.commit.flight import Flight
from dalsegno.adapters.postgres.commit.load import LoadedRows, NotLoaded
from dalsegno.adapters.postgres.commit.workspace import PostgresWorkspace
from dalsegno.adapters.postgres.store import PostgresStore
from dalsegno.core.settlement import LARGE, settle
from dalsegno.errors import Unavailable
from dalsegno.model.effect import CreateExecution, SpawnToken
from dalsegno.model.transition import Applied, Outcome, Transition

PAUSE = 0.05
"""Seconds between two tries if there is nothing else to commit."""
LONGEST_WAIT = 5.0
"""Seconds after which a start that waits for a caller fails instead."""


class OpenStarts:
    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._since: dict[str, float] = {}
        """Executions that were found to be started elsewhere, and when first."""

    def waits(self, step: Transition) -> bool:
        """Return True if its execution was found to be started elsewhere."""
        return step.execution in self._since

    async def still_among(self, batch: Sequence[Transition]) -> set[str]:
        """Return which of those found before still are. Without any, no query is made."""
        return await self._look([step.execution for step in batch if step.execution in self._since])

    async def among(self, batch: Sequence[Transition]) -> set[str]:
        return await self._look([step.execution for step in batch if creates(step)])

    async def _look(self, executions: list[str]) -> set[str]:
        if not executions:
            return set()
        found = {execution for (execution,) in await self._store.fetch("write.open_starts", executions)}
        for execution in executions:
            if execution in found:
                self._since.setdefault(execution, monotonic())
            else:
                self._since.pop(execution, None)
        return found

    async def wait(self, batch: Sequence[Transition]) -> None:
        """Wait a moment if the batch contains nothing else, which would be retried at once.

        The wait is limited: a caller's transaction may stay open for hours.
        """
        if not all(step.execution in self._since for step in batch):
            return
        now = monotonic()
        late = [step.execution for step in batch if now - self._since[step.execution] > LONGEST_WAIT]
        if late:
            for execution in late:
                self._since.pop(execution, None)
            raise Unavailable(
                f"a transaction that is still open starts execution '{late[0]}', too: the start can be sent again"
                " once that has ended"
            )
        await asyncio.sleep(PAUSE)


def created_by(transition: Transition) -> CreateExecution | None:
    first = transition.effects[0] if transition.effects else None
    return first if isinstance(first, CreateExecution) else None


def creates(transition: Transition) -> bool:
    return created_by(transition) is not None


async def begin(store: PostgresStore, batch: Sequence[Transition]) -> tuple[dict[int, Outcome], list[Flight]]:
    """Return the outcomes of those that were started, by index, and their executions as they are stored."""
    often = Counter(step.execution for step in batch)
    chosen = [place for place, step in enumerate(batch) if often[step.execution] == 1 and _is_plain(step)]
    if not chosen:
        return {}, []
    await store.reserve_numbers(len(chosen))
    loaded = LoadedRows()
    loaded.created = {batch[place].execution for place in chosen}
    rows, now = PostgresWorkspace(loaded, store.take_number), store.now()
    try:
        outcomes: dict[int, Outcome] = {place: settle(batch[place], rows, now) for place in chosen}
    except (NotLoaded, LookupError):
        return {}, []
    if not all(type(outcome) is Applied for outcome in outcomes.values()) or not rows.changes.are_starts():
        return {}, []
    made = await store.fetch("write.starts", *rows.changes.start_parameters())
    if made:
        store.saw(made[0][1])
    flights = {flight.row.id: flight for flight in rows.stored_flights()}
    numbers = {number for number, _ in made}
    begun = [place for place in chosen if flights[batch[place].execution].number in numbers]
    return {place: outcomes[place] for place in begun}, [flights[batch[place].execution] for place in begun]


def _is_plain(step: Transition) -> bool:
    """Return True if it begins at once, and its tokens wait for nothing; settling others here would be useless."""
    created = created_by(step)
    if created is None or created.pending or len(step.effects) > LARGE:
        return False
    tokens = [effect.token for effect in step.effects if type(effect) is SpawnToken]
    return all(token.due is None and token.limit_key is None for token in tokens)
