"""The reads that the archives of SQL stores share: definitions, and executions one by one.

A store runs its statements ``definition.<name>``, ``archive.<name>`` and ``listing.views``, with the same parameters
and columns in every store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from dalsegno.adapters.rows import execution_view
from dalsegno.model.definition import Definition, Version, read_version
from dalsegno.model.event import Event
from dalsegno.model.execution import Ending, ExecutionState, ExecutionView

BEYOND_VERSIONS = 2**31 - 1
"""Above every version number, and the largest value of the column in PostgreSQL."""


class SqlStore(Protocol):
    async def fetch(self, statement: str, *parameters: object) -> list[Any]:
        """Run a statement by its name."""


class SqlArchive:
    def __init__(self, store: SqlStore, listed: Callable[[Sequence[str]], object]) -> None:
        """``listed`` makes one parameter of many ids."""
        self._sql = store
        self._listed = listed

    # -- definitions ------------------------------------------------------------------------------------------

    async def definition(self, name: str, version: Version = None) -> Definition | None:
        wanted = read_version(version)
        if wanted is None:
            return await self._definition("definition.current", name)
        if isinstance(wanted, int):
            return await self._definition("definition.version", name, min(wanted, BEYOND_VERSIONS))
        return await self._definition("definition.aliased", name, wanted)

    async def definition_by_hash(self, hash: str) -> Definition | None:
        return await self._definition("definition.by_hash", hash)

    async def definitions(self, after: str = "", limit: int = 500) -> list[Definition]:
        return [Definition(*row) for row in await self._sql.fetch("definition.page", after, limit)]

    async def versions(
        self, name: str, limit: int | None = None, before: int | None = None
    ) -> list[Definition]:
        first = min(before, BEYOND_VERSIONS) if before is not None else None
        rows = await self._sql.fetch("definition.versions", name, first, limit)
        return [Definition(*row) for row in rows]

    async def version_of(self, name: str, hash: str | None = None) -> int | None:
        if hash is None:
            rows = await self._sql.fetch("definition.current_version", name)
        else:
            rows = await self._sql.fetch("definition.version_of", name, hash)
        return rows[0][0] if rows else None

    async def count_adopted(self, most: int) -> int:
        rows = await self._sql.fetch("definition.adopted_up_to", most)
        return int(rows[0][0])

    async def aliases(self, name: str) -> dict[str, int]:
        return dict(await self._sql.fetch("definition.aliases", name))

    async def _definition(self, statement: str, *parameters: object) -> Definition | None:
        rows = await self._sql.fetch(statement, *parameters)
        return Definition(*rows[0]) if rows else None

    # -- executions -------------------------------------------------------------------------------------------

    async def outline(self, execution: str) -> ExecutionView | None:
        rows = await self._sql.fetch("listing.views", self._listed([execution]))
        return execution_view(rows[0]) if rows else None

    async def states(self, executions: Sequence[str]) -> dict[str, ExecutionState]:
        return dict(await self._sql.fetch("archive.states", self._listed(executions)))

    async def endings(self, executions: Sequence[str]) -> dict[str, Ending]:
        rows = await self._sql.fetch("archive.endings", self._listed(executions))
        return {execution: Ending(*how) for execution, *how in rows}

    async def events(self, execution: str, after: int = 0, limit: int = 1000) -> list[Event]:
        rows = await self._sql.fetch("archive.events_of", execution, after, limit)
        return [Event(execution, *row) for row in rows]

    async def count_tagged(self, name: str, value: str, most: int) -> int:
        rows = await self._sql.fetch("archive.tagged_up_to", name, value, most)
        return int(rows[0][0])

    async def newest_events(self, executions: Sequence[str]) -> dict[str, int]:
        return dict(await self._sql.fetch("archive.newest_events", self._listed(executions)))

    async def is_told(self, execution: str) -> bool:
        rows = await self._sql.fetch("archive.is_told", execution)
        return bool(rows and rows[0][0])
