"""SqlitePublished: published values and streams of executions."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from dalsegno.adapters.sqlite.commit.streams import add_part, save_stream
from dalsegno.adapters.sqlite.commit.workspace import SqliteWorkspace
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.adapters.sqlite.store import SqliteStore
from dalsegno.core.published import Fences, KnownStream, KnownValue, settle_chunks, settle_values
from dalsegno.model.published import (
    ChunkWrite,
    Mark,
    PublishedValue,
    Refusal,
    StreamPart,
    StreamView,
    Usage,
    ValueWrite,
)
from dalsegno.ports.published import PARTS


class SqlitePublished:
    def __init__(self, store: SqliteStore) -> None:
        self.store = store

    async def values(self, execution: str) -> list[PublishedValue]:
        return [PublishedValue(*row) for row in await self._all("published.values", execution)]

    async def marks(self, executions: Sequence[str]) -> dict[str, Mark]:
        rows = await self._all("published.marks", json.dumps(list(executions)))
        return {name: Mark(*mark) for name, *mark in rows}

    async def usage(self, execution: str) -> Usage:
        def look(connection: sqlite3.Connection) -> Usage:
            sizes = dict(connection.execute(SQL["published.sizes"], (execution,)).fetchall())
            return Usage(sizes, {view.name: view for view in _streams(connection, execution)})

        return await self.store.read(look)

    async def publish(self, writes: Sequence[ValueWrite]) -> list[Refusal]:
        now = self.store.clock.now()

        def write(rows: SqliteWorkspace) -> list[Refusal]:
            connection = rows.connection
            named = connection.execute(SQL["published.known_values"], (_names(writes),))
            known = {(execution, key): KnownValue(*row) for execution, key, *row in named}
            settled = settle_values(writes, _fences(rows, writes), known)
            for place, (each, version) in settled.saved.items():
                row = (*place, each.data, version, now, each.token, each.fence, each.passing)
                connection.execute(SQL["published.save_value"], row)
            connection.executemany(SQL["published.remove_value"], settled.removed)
            return settled.refusals

        return await self.store.write(write)

    async def append(self, writes: Sequence[ChunkWrite], most_stored: int | None = None) -> list[Refusal]:
        now = self.store.clock.now()

        def write(rows: SqliteWorkspace) -> list[Refusal]:
            connection = rows.connection
            named = connection.execute(SQL["published.known_streams"], (_names(writes),))
            known = {(execution, name): _known_stream(row) for execution, name, *row in named}
            stored = dict(connection.execute(SQL["published.stored"], (_names(writes),)).fetchall())
            settled = settle_chunks(writes, _fences(rows, writes), known, stored, most_stored)
            for place, head in settled.changed.items():
                save_stream(connection, place, head)
            for part in settled.parts:
                each = part.write
                add_part(
                    connection,
                    (each.execution, each.stream),
                    part.first,
                    each.chunks,
                    (now, each.task, each.attempt, part.restarts),
                )
            for execution, size in settled.charges.items():
                connection.execute(SQL["history.charge"], {"execution": execution, "size": size})
            return settled.refusals

        return await self.store.write(write)

    async def streams(self, execution: str) -> list[StreamView]:
        return await self.store.read(lambda connection: _streams(connection, execution))

    async def lengths(self, streams: Sequence[tuple[str, str]]) -> dict[tuple[str, str], StreamView]:
        rows = await self._all("published.lengths", json.dumps([list(each) for each in streams]))
        return {(execution, name): _view(name, *row) for execution, name, *row in rows}

    async def parts(
        self, execution: str, stream: str, offset: int = 0, limit: int = PARTS
    ) -> list[StreamPart]:
        rows = await self._all("published.parts", execution, stream, offset, limit)
        return [
            StreamPart(first, count, at, task, attempt, bool(restarts), data)
            for first, count, at, task, attempt, restarts, data in rows
        ]

    async def _all(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        return await self.store.read(
            lambda connection: connection.execute(SQL[statement], parameters).fetchall()
        )


def _names(writes: Iterable[ValueWrite | ChunkWrite]) -> str:
    return json.dumps(list(dict.fromkeys(write.execution for write in writes)))


def _fences(rows: SqliteWorkspace, writes: Iterable[ValueWrite | ChunkWrite]) -> Fences:
    found: dict[tuple[str, str], int] = {}
    for write in writes:
        if rows.execution(write.execution) is None:
            continue
        token = rows.token(write.execution, write.token)
        if token is not None and token.state == "leased":
            found[write.execution, write.token] = token.fence
    return found


def _known_stream(row: Sequence[Any]) -> KnownStream:
    length, size, closed, token, fence = row
    return KnownStream(length, size, bool(closed), token, fence)


def _streams(connection: sqlite3.Connection, execution: str) -> list[StreamView]:
    return [_view(*row) for row in connection.execute(SQL["published.streams"], (execution,)).fetchall()]


def _view(name: str, length: int, size: int, closed: int) -> StreamView:
    return StreamView(name, length, size, bool(closed))
