"""PostgresArchive: definitions and history in the same database as the ledger's rows.

Each change of a definition is one transaction that locks the name's row.
"""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.adapters.archive import BEYOND_VERSIONS, SqlArchive
from dalsegno.adapters.postgres.archive import listing
from dalsegno.adapters.postgres.archive.removal import Removal
from dalsegno.adapters.postgres.store import PostgresStore, Transaction, snapshot
from dalsegno.adapters.rows import execution_view
from dalsegno.errors import NotFound
from dalsegno.model.definition import (
    Definition,
    Needs,
    check_alias,
    no_such_version,
    refuse_needed,
    unknown,
)
from dalsegno.model.execution import ExecutionState, ExecutionView
from dalsegno.ports.archive import ExecutionFilter, Place

NAMED = 3
"""Executions that a refused removal names."""


async def put_definition(rows: Transaction, new: Definition) -> Definition:
    [(highest,)] = await rows.fetch("definition.lock", new.name)
    found = await rows.fetch("definition.by_name_and_hash", new.name, new.hash)
    if not found:
        given = (new.hash, new.kind, new.source, new.created_at)
        found = await rows.fetch("definition.insert", new.name, highest + 1, *given)
    definition = Definition(*found[0])
    await rows.fetch("definition.set_current", definition.name, definition.version)
    return definition


async def set_alias(rows: Transaction, name: str, alias: str, version: int) -> None:
    await rows.fetch("definition.lock_known", [name])
    if not await rows.fetch("definition.version", name, version):
        raise NotFound(no_such_version(name, version))
    await rows.fetch("definition.set_alias", name, alias, version)


async def remove_definition(rows: Transaction, name: str, version: int | None) -> int:
    """Remove what nothing needs any more; return how many versions were removed."""
    parts = [part for (part,) in await rows.fetch("definition.parts", name)]
    locked = dict(await rows.fetch("definition.lock_known", [name, *parts]))
    current = locked.get(name)
    if current is None or (version is not None and not await rows.fetch("definition.version", name, version)):
        raise unknown(name, version)
    whole = [name, *parts] if version is None else [name]
    unfinished = await rows.fetch("definition.unfinished_of", whole, version, NAMED)
    aliases = await rows.fetch("definition.aliases", name)
    needs = Needs(
        unfinished=tuple(execution for (execution,) in unfinished),
        aliases=tuple(alias for alias, meant in aliases if version in (None, meant)),
        current=current == version,
    )
    refuse_needed(name, version, needs)
    gone = await rows.fetch("definition.delete", whole, version)
    if version is None:
        await rows.fetch("definition.forget_current", whole)
    return sum(1 for (removed,) in gone if removed == name)


class PostgresArchive(SqlArchive):
    def __init__(self, store: PostgresStore) -> None:
        super().__init__(store, list)
        self.store = store
        self._removal = Removal(store)

    # -- definitions ------------------------------------------------------------------------------------------

    async def put_definition(self, name: str, hash: str, kind: str, source: bytes) -> Definition:
        new = Definition(name, 0, hash, kind, source, self.store.now())
        async with self.store.transaction() as rows:
            return await put_definition(rows, new)

    async def set_alias(self, name: str, alias: str, version: int) -> None:
        check_alias(alias)
        async with self.store.transaction() as rows:
            await set_alias(rows, name, alias, min(version, BEYOND_VERSIONS))

    async def remove_alias(self, name: str, alias: str) -> bool:
        return bool(await self.store.fetch("definition.remove_alias", name, alias))

    async def remove_definition(self, name: str, version: int | None = None) -> int:
        number = min(version, BEYOND_VERSIONS) if version is not None else None
        async with self.store.transaction() as rows:
            return await remove_definition(rows, name, number)

    # -- executions -------------------------------------------------------------------------------------------

    async def execution(self, execution: str) -> ExecutionView | None:
        rows = await self.store.fetch("archive.one", execution)
        return execution_view(rows[0]) if rows else None

    async def executions(
        self, where: ExecutionFilter, before: str | Place | None = None, limit: int = 50
    ) -> list[ExecutionView]:
        async with snapshot(self.store) as rows:
            found = await listing.page(rows, where, before, limit)
        return [execution_view(view) for view in found]

    # -- retention --------------------------------------------------------------------------------------------

    async def remove_ended(
        self, before: float, limit: int = 500, states: Sequence[ExecutionState] = ()
    ) -> int:
        return await self._removal.remove_ended(before, limit, states)

    async def remove(self, executions: Sequence[str]) -> list[str]:
        return await self._removal.remove_named(executions)
