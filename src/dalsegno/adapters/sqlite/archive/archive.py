"""SqliteArchive: definitions and history in the same file as the ledger's rows.

A definition is removed only when nothing needs it any more; the check is part of the same transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import partial

import msgspec

from dalsegno.adapters.archive import BEYOND_VERSIONS, SqlArchive
from dalsegno.adapters.rows import execution_view
from dalsegno.adapters.sqlite.archive import listing
from dalsegno.adapters.sqlite.archive.removal import remove_ended, remove_named
from dalsegno.adapters.sqlite.commit.workspace import SqliteWorkspace
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.adapters.sqlite.store import SqliteStore
from dalsegno.errors import NotFound
from dalsegno.model.definition import (
    Definition,
    Needs,
    check_alias,
    no_such_version,
    refuse_needed,
    unknown,
)
from dalsegno.model.execution import ENDED, NOT_ENDED, ExecutionState, ExecutionView
from dalsegno.ports.archive import ExecutionFilter, Place

NAMED = 3
"""Executions that a refused removal names."""


def remove_definition(connection: sqlite3.Connection, name: str, version: int | None) -> int:
    row = connection.execute(SQL["definition.current"], (name,)).fetchone()
    current = Definition(*row) if row is not None else None
    if current is None or (
        version is not None
        and connection.execute(SQL["definition.version"], (name, version)).fetchone() is None
    ):
        raise unknown(name, version)
    parts = [part for (part,) in connection.execute(SQL["definition.parts"], {"name": name})]
    aliases = dict(connection.execute(SQL["definition.aliases"], (name,)).fetchall())
    needs = Needs(
        unfinished=_unfinished(connection, name, version, parts if version is None else []),
        aliases=tuple(alias for alias, meant in aliases.items() if version in (None, meant)),
        current=current.version == version,
    )
    refuse_needed(name, version, needs)
    if version is None:
        for part in parts:
            _delete(connection, part, None)
    return _delete(connection, name, version)


def _unfinished(
    connection: sqlite3.Connection, name: str, version: int | None, parts: list[str]
) -> tuple[str, ...]:
    found: list[str] = []
    for workflow in (name, *parts):
        for state in NOT_ENDED:
            given = {"name": workflow, "state": state, "version": version, "limit": NAMED - len(found)}
            found += [
                execution for (execution,) in connection.execute(SQL["definition.unfinished_of"], given)
            ]
    return tuple(found)


def _delete(connection: sqlite3.Connection, name: str, version: int | None) -> int:
    given = {"name": name, "version": version}
    connection.execute(SQL["definition.remember_removed"], given)
    if version is None:
        connection.execute(SQL["definition.delete_current"], (name,))
    return connection.execute(SQL["definition.delete"], given).rowcount


REMOVED_ROWS = 2000
"""Approximate number of rows that retention removes in one transaction."""


class SqliteArchive(SqlArchive):
    def __init__(self, store: SqliteStore) -> None:
        super().__init__(store, _names)
        self.store = store

    # -- definitions ------------------------------------------------------------------------------------------

    async def put_definition(self, name: str, hash: str, kind: str, source: bytes) -> Definition:
        new = Definition(name, 0, hash, kind, source, self.store.clock.now())
        return await self.store.write(lambda rows: _put_definition(rows, new))

    async def set_alias(self, name: str, alias: str, version: int) -> None:
        check_alias(alias)
        number = min(version, BEYOND_VERSIONS)
        await self.store.write(lambda rows: _set_alias(rows, name, alias, number))

    async def remove_alias(self, name: str, alias: str) -> bool:
        gone = await self.store.write(
            lambda rows: rows.connection.execute(SQL["definition.remove_alias"], (name, alias)).rowcount
        )
        return gone > 0

    async def remove_definition(self, name: str, version: int | None = None) -> int:
        number = min(version, BEYOND_VERSIONS) if version is not None else None
        return await self.store.write(lambda rows: remove_definition(rows.connection, name, number))

    # -- executions -------------------------------------------------------------------------------------------

    async def execution(self, execution: str) -> ExecutionView | None:
        row = await self.store.read(lambda connection: listing.whole_row(connection, execution))
        return execution_view(row) if row is not None else None

    async def executions(
        self, where: ExecutionFilter, before: str | Place | None = None, limit: int = 50
    ) -> list[ExecutionView]:
        rows = await self.store.read(lambda connection: listing.page(connection, where, before, limit))
        return [execution_view(row) for row in rows]

    # -- retention --------------------------------------------------------------------------------------------

    async def remove_ended(
        self, before: float, limit: int = 500, states: Sequence[ExecutionState] = ()
    ) -> int:
        removed = 0
        wanted: Sequence[str] = states or sorted(ENDED)
        for state in wanted:
            more = True
            while more and removed < limit:
                work = partial(
                    remove_ended, state=state, before=before, limit=limit - removed, most_rows=REMOVED_ROWS
                )
                went, more = await self.store.write(work)
                removed += went
        return removed

    async def remove(self, executions: Sequence[str]) -> list[str]:
        removed: list[str] = []
        more = True
        while more:
            work = partial(remove_named, names=_names(executions), most_rows=REMOVED_ROWS)
            went, more = await self.store.write(work)
            removed += went
        return removed


def _names(executions: Sequence[str]) -> str:
    """Return the ids as one parameter. Programs that wait for many executions query all of them, often."""
    return msgspec.json.encode(executions).decode()


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
