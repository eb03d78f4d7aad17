"""SqliteRecords: records and logs in tables of their own."""

from __future__ import annotations

from typing import Any

from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.adapters.sqlite.store import SqliteStore
from dalsegno.adapters.sqlite.workspace import SqliteWorkspace
from dalsegno.ports.records import LogEntry, Record


class SqliteRecords:
    def __init__(self, store: SqliteStore) -> None:
        self.store = store

    async def put(self, kind: str, id: str, data: bytes, expected: int | None = None) -> Record | None:
        now = self.store.clock.now()

        def change(rows: SqliteWorkspace) -> Record | None:
            row = rows.connection.execute(SQL["records.one"], (kind, id)).fetchone()
            if expected is not None and expected != (row[3] if row is not None else 0):
                return None
            rows.connection.execute(SQL["records.put"], (kind, id, data, now, now))
            return Record(*rows.connection.execute(SQL["records.one"], (kind, id)).fetchone())

        return await self.store.write(change)

    async def get(self, kind: str, id: str) -> Record | None:
        found = await self._all("records.one", kind, id)
        return Record(*found[0]) if found else None

    async def page(self, kind: str, after: str = "", limit: int = 100) -> list[Record]:
        return [Record(*row) for row in await self._all("records.page", kind, after, limit)]

    async def remove(self, kind: str, id: str, expected: int | None = None) -> bool:
        parameters = (kind, id, expected, expected)
        return await self.store.write(
            lambda rows: rows.connection.execute(SQL["records.remove"], parameters).rowcount > 0
        )

    async def append(self, log: str, *data: bytes) -> int:
        now = self.store.clock.now()

        def insert(rows: SqliteWorkspace) -> int:
            number: int | None = None
            for each in data:
                number = rows.connection.execute(SQL["records.append"], (log, now, each)).lastrowid
            return number or 0

        return await self.store.write(insert)

    async def entries(self, log: str, before: int | None = None, limit: int = 100) -> list[LogEntry]:
        last = before if before is not None else 2**62
        return [LogEntry(*row) for row in await self._all("records.entries", log, last, limit)]

    async def trim(self, log: str, before: float, limit: int = 500) -> int:
        parameters = (log, before, limit)
        return await self.store.write(
            lambda rows: rows.connection.execute(SQL["records.trim"], parameters).rowcount
        )

    async def _all(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        return await self.store.read(
            lambda connection: connection.execute(SQL[statement], parameters).fetchall()
        )
