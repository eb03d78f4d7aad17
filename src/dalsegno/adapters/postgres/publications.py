"""PostgresPublications: marks of how far the statuses of executions are published."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from dalsegno.adapters.postgres.store import PostgresStore
from dalsegno.ports.messages import Claims


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

    async def unfinished(self, after: str = "", limit: int = 500) -> list[str]:
        return [name for (name,) in await self.store.fetch("publications.unfinished", after, limit)]
