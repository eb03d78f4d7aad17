"""SqlitePublications: marks of how far the statuses of executions are published."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.adapters.sqlite.store import SqliteStore
from dalsegno.model.event import Event
from dalsegno.ports.messages import Claims, News, Unpublished, unpublished_page


class SqlitePublications:
    def __init__(self, store: SqliteStore) -> None:
        self.store = store

    async def claim(self, owner: str, executions: Sequence[str], seconds: float) -> Claims:
        now = self.store.clock.now()
        asked = {"owner": owner, "now": now, "executions": json.dumps(list(executions))}

        def claim(connection: sqlite3.Connection) -> Claims:
            claims = Claims({}, set())
            for execution, confirmed, is_free in connection.execute(
                SQL["publications.known"], asked
            ).fetchall():
                if is_free:
                    claims.marks[execution] = confirmed
                    connection.execute(SQL["publications.claim"], (owner, now + seconds, execution))
                else:
                    claims.held.add(execution)
            return claims

        return await self.store.write(lambda rows: claim(rows.connection))

    async def confirm(self, owner: str, confirmed: Mapping[str, int], ended: Collection[str] = ()) -> None:
        moved = [(seq, name, owner) for name, seq in confirmed.items() if name not in ended]
        gone = [(name, owner) for name in ended]

        def confirm(connection: sqlite3.Connection) -> None:
            connection.executemany(SQL["publications.confirm"], moved)
            connection.executemany(SQL["publications.remove"], gone)

        await self.store.write(lambda rows: confirm(rows.connection))

    async def news(self, after: Mapping[str, int], limit: int = 1000) -> dict[str, News]:
        def look(connection: sqlite3.Connection) -> dict[str, News]:
            heads = connection.execute(SQL["publications.heads"], (json.dumps(list(after)),)).fetchall()
            return {row[0]: _news(connection, row, after[row[0]], limit) for row in heads}

        return await self.store.read(look)

    async def last_events(self, executions: Sequence[str]) -> dict[str, int]:
        def look(connection: sqlite3.Connection) -> dict[str, int]:
            named = (json.dumps(list(executions)),)
            return dict(connection.execute(SQL["publications.last_events"], named).fetchall())

        return await self.store.read(look)

    async def unfinished(self, after: str = "", limit: int = 1000) -> Unpublished:
        def look(connection: sqlite3.Connection) -> Unpublished:
            rows = connection.execute(SQL["publications.unfinished"], (after, limit)).fetchall()
            return unpublished_page(rows, limit)

        return await self.store.read(look)


def _news(connection: sqlite3.Connection, row: tuple[Any, ...], after: int, limit: int) -> News:
    name, workflow, definition, kind, state, priority, tags, is_told, context = row
    events = connection.execute(SQL["history.events_of"], (name, after, limit))
    return News(
        workflow,
        definition,
        kind,
        state,
        priority,
        tuple((tag, value) for tag, value in json.loads(tags)),
        [Event(name, *event) for event in events],
        bool(is_told),
        context,
    )
