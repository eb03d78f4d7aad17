"""Starts that are one statement: of executions that, as far as is known, do not exist yet.

What is new needs no rows of before, so nothing is read ahead and nothing locked. The statement makes those executions
that nobody else has made or is making; the others are left to whoever reads first and then judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dalsegno.adapters.postgres.flight import Flight
from dalsegno.adapters.postgres.loaded import Loaded, NotLoaded
from dalsegno.adapters.postgres.open_starts import created_by
from dalsegno.adapters.postgres.store import PostgresStore
from dalsegno.adapters.postgres.workspace import PostgresWorkspace
from dalsegno.core.settlement import settle
from dalsegno.model.effect import SpawnToken
from dalsegno.model.transition import Applied, Outcome, Transition


async def begin(store: PostgresStore, batch: Sequence[Transition]) -> tuple[dict[int, Outcome], list[Flight]]:
    """Outcomes of those that were started, by their places, and their executions as they are stored."""
    often = Counter(step.execution for step in batch)
    chosen = [place for place, step in enumerate(batch) if often[step.execution] == 1 and _is_plain(step)]
    if not chosen:
        return {}, []
    await store.reserve_numbers(len(chosen))
    loaded = Loaded()
    loaded.created = {batch[place].execution for place in chosen}
    rows, now = PostgresWorkspace(loaded, store.take_number), store.now()
    try:
        outcomes: dict[int, Outcome] = {place: settle(batch[place], rows, now) for place in chosen}
    except (NotLoaded, LookupError):
        return {}, []
    if not all(type(outcome) is Applied for outcome in outcomes.values()) or not rows.changes.are_births():
        return {}, []
    made = await store.fetch("write.starts", *rows.changes.births())
    if made:
        store.saw(made[0][1])
    flights = {flight.row.id: flight for flight in rows.stored_flights()}
    numbers = {number for number, _ in made}
    begun = [place for place in chosen if flights[batch[place].execution].number in numbers]
    return {place: outcomes[place] for place in begun}, [flights[batch[place].execution] for place in begun]


def _is_plain(step: Transition) -> bool:
    """Whether it begins at once, and what it spawns waits for nothing: else it would be settled in vain."""
    created = created_by(step)
    if created is None or created.pending:
        return False
    tokens = [effect.token for effect in step.effects if type(effect) is SpawnToken]
    return all(token.due is None and token.limit_key is None for token in tokens)
