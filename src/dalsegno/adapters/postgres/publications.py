"""PostgresPublications: marks of how far the statuses of executions are published."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from dalsegno.adapters.postgres.store import PostgresStore
from dalsegno.model.event import Event
from dalsegno.ports.messages import Claims, News, Unpublished, unpublished_page


class PostgresPublications:
    """Every call is one statement."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store

    async def claim(self, owner: str, executions: Sequence[str], seconds: float) -> Claims:
        given = (owner, list(executions), seconds, self.store.given_now())
        claims = Claims({}, set())
        for execution, confirmed in await self.store.fetch("publications.claim", *given):
            if confirmed is None:
                claims.held.add(execution)
            else:
                claims.marks[execution] = confirmed
        return claims

    async def confirm(self, owner: str, confirmed: Mapping[str, int], ended: Collection[str] = ()) -> None:
        names, numbers = list(confirmed), list(confirmed.values())
        await self.store.fetch("publications.confirm", owner, names, numbers, list(ended))

    async def news(self, after: Mapping[str, int], limit: int = 1000) -> dict[str, News]:
        # First whether a history is complete: events that are read later are then up to its end.
        names = list(after)
        found = {row[0]: _news(*row[1:]) for row in await self.store.fetch("publications.heads", names)}
        numbers = list(after.values())
        for name, *event in await self.store.fetch("publications.events", names, numbers, limit):
            if name in found:
                found[name].events.append(Event(name, *event))
        return found

    async def last_events(self, executions: Sequence[str]) -> dict[str, int]:
        rows = await self.store.fetch("publications.last_events", list(executions))
        return {row[0]: row[1] for row in rows}

    async def unfinished(self, after: str = "", limit: int = 1000) -> Unpublished:
        rows = await self.store.fetch("publications.unfinished", after, limit)
        return unpublished_page([(name, has_more) for name, has_more in rows], limit)


def _news(
    workflow: str,
    definition: str,
    kind: str,
    state: str,
    priority: int,
    tags: str,
    is_told: bool,
    context: bytes | None,
) -> News:
    read = tuple((name, value) for name, value in json.loads(tags))
    return News(workflow, definition, kind, state, priority, read, [], is_told, context)
