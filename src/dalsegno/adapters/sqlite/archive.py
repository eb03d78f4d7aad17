"""SqliteArchive: definitions and history beside the ledger's rows, in the same file."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import Any

from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.adapters.sqlite.store import SqliteStore
from dalsegno.adapters.sqlite.sweep import remove_ended
from dalsegno.adapters.sqlite.views import execution_view
from dalsegno.adapters.sqlite.workspace import SqliteWorkspace
from dalsegno.errors import NotFound
from dalsegno.model.definition import Definition, Version, check_alias, no_such_version, read_version
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionState, ExecutionView
from dalsegno.ports.archive import ExecutionFilter

REMOVED_ROWS = 2000
"""About how many rows retention removes in one transaction."""

BEYOND_VERSIONS = 2**31
"""No version is as high; SQLite takes no number of more than 64 bits."""


class SqliteArchive:
    def __init__(self, store: SqliteStore) -> None:
        self.store = store

    # -- definitions ------------------------------------------------------------------------------------------

    async def put_definition(self, name: str, hash: str, kind: str, source: bytes) -> Definition:
        new = Definition(name, 0, hash, kind, source, self.store.clock.now())
        return await self.store.write(lambda rows: _put_definition(rows, new))

    async def definition(self, name: str, version: Version = None) -> Definition | None:
        wanted = read_version(version)
        if wanted is None:
            return await self._definition("definition.current", name)
        statement = "definition.version" if isinstance(wanted, int) else "definition.aliased"
        return await self._definition(statement, name, wanted)

    async def definition_by_hash(self, hash: str) -> Definition | None:
        return await self._definition("definition.by_hash", hash)

    async def definitions(self) -> list[Definition]:
        rows = await self.store.read(lambda connection: connection.execute(SQL["definition.all"]).fetchall())
        return [Definition(*row) for row in rows]

    async def versions(self, name: str) -> list[Definition]:
        rows = await self.store.read(
            lambda connection: connection.execute(SQL["definition.versions"], (name,)).fetchall()
        )
        return [Definition(*row) for row in rows]

    async def set_alias(self, name: str, alias: str, version: int) -> None:
        check_alias(alias)
        number = min(version, BEYOND_VERSIONS)
        await self.store.write(lambda rows: _set_alias(rows, name, alias, number))

    async def remove_alias(self, name: str, alias: str) -> bool:
        gone = await self.store.write(
            lambda rows: rows.connection.execute(SQL["definition.remove_alias"], (name, alias)).rowcount
        )
        return gone > 0

    async def aliases(self, name: str) -> dict[str, int]:
        rows = await self.store.read(
            lambda connection: connection.execute(SQL["definition.aliases"], (name,)).fetchall()
        )
        return dict(rows)

    async def _definition(self, statement: str, *parameters: object) -> Definition | None:
        row = await self.store.read(
            lambda connection: connection.execute(SQL[statement], parameters).fetchone()
        )
        return Definition(*row) if row is not None else None

    # -- executions -------------------------------------------------------------------------------------------

    async def execution(self, execution: str) -> ExecutionView | None:
        row = await self.store.read(
            lambda connection: connection.execute(SQL["listing.one"], (execution,)).fetchone()
        )
        return execution_view(row) if row is not None else None

    async def states(self, executions: Sequence[str]) -> dict[str, ExecutionState]:
        names = json.dumps(list(executions))
        rows = await self.store.read(
            lambda connection: connection.execute(SQL["listing.states"], (names,)).fetchall()
        )
        return dict(rows)

    async def executions(
        self, where: ExecutionFilter, before: str | None = None, limit: int = 50
    ) -> list[ExecutionView]:
        rows = await self.store.read(lambda connection: _list(connection, where, before, limit))
        return [execution_view(row) for row in rows]

    async def events(self, execution: str, after: int = 0, limit: int = 1000) -> list[Event]:
        rows = await self.store.read(
            lambda connection: connection.execute(
                SQL["history.events_of"], (execution, after, limit)
            ).fetchall()
        )
        return [Event(execution, *row) for row in rows]

    async def remove_ended(self, before: float, limit: int = 500) -> int:
        removed, more = 0, True
        while more and removed < limit:
            work = partial(remove_ended, before=before, limit=limit - removed, most_rows=REMOVED_ROWS)
            went, more = await self.store.write(work)
            removed += went
        return removed


def _put_definition(rows: SqliteWorkspace, new: Definition) -> Definition:
    connection = rows.connection
    found = connection.execute(SQL["definition.by_name_and_hash"], (new.name, new.hash)).fetchone()
    if found is None:
        connection.execute(
            SQL["definition.insert"],
            {
                "name": new.name,
                "hash": new.hash,
                "kind": new.kind,
                "source": new.source,
                "now": new.created_at,
            },
        )
        found = connection.execute(SQL["definition.by_name_and_hash"], (new.name, new.hash)).fetchone()
    definition = Definition(*found)
    connection.execute(SQL["definition.set_current"], (definition.name, definition.version))
    return definition


def _set_alias(rows: SqliteWorkspace, name: str, alias: str, version: int) -> None:
    connection = rows.connection
    if connection.execute(SQL["definition.version"], (name, version)).fetchone() is None:
        raise NotFound(no_such_version(name, version))
    connection.execute(SQL["definition.set_alias"], (name, alias, version))


def _list(
    connection: sqlite3.Connection, where: ExecutionFilter, before: str | None, limit: int
) -> list[tuple[Any, ...]]:
    created_at, mark = math.inf, ""
    if before is not None:
        row = connection.execute(SQL["listing.age"], (before,)).fetchone()
        if row is None:
            return []
        created_at, mark = row[0], before
    parameters = {
        "workflow": where.workflow,
        "parent": where.parent,
        "state": where.states[0] if where.states else None,
        "states": json.dumps(where.states) if where.states else None,
        "kinds": json.dumps(where.kinds) if where.kinds else None,
        "relations": json.dumps(where.relations) if where.relations else None,
        "tag": where.tags[0][0] if where.tags else None,
        "tag_value": where.tags[0][1] if where.tags else None,
        "tags": json.dumps(where.tags),
        "created_at": created_at,
        "mark": mark,
        "limit": limit,
    }
    return connection.execute(SQL[_leading(where)], parameters).fetchall()


def _leading(where: ExecutionFilter) -> str:
    """The statement whose index leaves the fewest rows to look at, as far as one can tell without counting.

    Most executions of a store have completed; any other single state is rarer than a workflow.
    """
    if where.awaits_signal:
        return "listing.awaiting_signal"
    if where.kinds == ("schedule",):
        return "listing.schedules"
    if where.parent is not None:
        return "listing.of_parent"
    if where.tags:
        return "listing.tagged"
    if len(where.states) == 1 and (where.workflow is None or where.states[0] != "COMPLETED"):
        return "listing.in_state"
    return "listing.of_workflow" if where.workflow is not None else "listing.newest"
