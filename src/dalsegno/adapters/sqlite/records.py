"""SqliteRecords, SqliteBlobs and SqlitePublications: records, logs, large values, and marks of how far statuses are
published, in tables of their own.

SQLite has one writer at a time, so that a transaction with 16 MiB blocks all others for a tenth of a second.
Larger blobs are written in pieces, each in a transaction of its own, which commits of others share or precede.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any

from msgspec import Struct

from dalsegno.adapters.sqlite.commit.workspace import SqliteWorkspace
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.adapters.sqlite.store import SqliteStore
from dalsegno.errors import LimitExceeded, NotFound
from dalsegno.model.event import Event
from dalsegno.ports.messages import Claims, News, Unpublished, unpublished_page
from dalsegno.ports.records import UNTIL_REMOVED, LogEntry, Record, refuse_over

MAX_BYTES = 512 * 1024 * 1024
"""SQLite's limit is a billion bytes per row, and a value is held in memory whole."""
PIECE = 512 * 1024
"""Bytes that one transaction writes. Other commits wait for it."""


class SqliteBlobs:
    def __init__(self, store: SqliteStore, max_bytes: int = MAX_BYTES) -> None:
        self.store = store
        self.max_bytes = max_bytes
        self._turn = asyncio.Lock()

    async def put(
        self, execution: str, data: bytes, *, turn: int | None = None, limit: int | None = None
    ) -> str:
        if len(data) > self.max_bytes:
            raise LimitExceeded(
                f"a value of {len(data)} bytes is larger than the limit of {self.max_bytes} bytes per blob"
            )
        name = await asyncio.to_thread(lambda: sha256(data).hexdigest())
        blob = NewBlob(execution, name, data, turn, limit)
        while not await self._finish(blob):
            for number in range(1, blob.pieces + 1):
                await self._write_large(partial(blob.put_piece, number))
        return name

    async def _finish(self, blob: NewBlob) -> bool:
        answer = await self.store.write(blob.finish)
        if isinstance(answer, Refusal):
            refuse_over(answer.stored, len(blob.data), blob.limit)
        return answer is True

    async def _write_large(self, work: Callable[[SqliteWorkspace], None]) -> None:
        """Write one piece per transaction, however many blobs are written at a time."""
        async with self._turn:
            await self.store.write(work)

    async def get(self, execution: str, blob: str) -> bytes:
        data = await self.store.read(lambda connection: _whole(connection, execution, blob))
        if data is None:
            raise NotFound(f"execution {execution} has no blob {blob}")
        return data

    async def stored(self, execution: str) -> int:
        return await self.store.read(lambda connection: _stored(connection, execution))

    async def charge(self, execution: str, size: int, *, limit: int | None = None) -> None:
        def charge(connection: sqlite3.Connection) -> int:
            stored = _stored(connection, execution)
            if size <= 0 or limit is None or stored + size <= limit:
                _charge(connection, execution, size)
                return -1
            return stored

        stored = await self.store.write(lambda rows: charge(rows.connection))
        if stored >= 0:
            refuse_over(stored, size, limit)

    async def prune(self, execution: str, turn: int, keep: Collection[str]) -> None:
        await self._prune(execution, turn, keep)

    async def remove(self, execution: str, blobs: Collection[str]) -> None:
        await self._prune(execution, UNTIL_REMOVED + 1, (), json.dumps(list(blobs)))

    async def _prune(self, execution: str, turn: int, keep: Collection[str], only: str | None = None) -> None:
        named = {"execution": execution, "turn": turn, "keep": json.dumps(list(keep)), "named": only}

        def prune(connection: sqlite3.Connection) -> list[tuple[str, int]]:
            (size,) = connection.execute(SQL["history.prunable_bytes"], named).fetchone()
            if not size:
                return []
            pieces = connection.execute(SQL["history.prunable_pieces"], named).fetchall()
            connection.execute(SQL["history.prune_blobs"], named)
            _charge(connection, execution, -size)
            return pieces

        for blob, pieces in await self.store.write(lambda rows: prune(rows.connection)):
            for number in range(1, pieces + 1):
                await self._write_large(partial(prune_piece, (execution, blob, number)))


class Refusal(Struct, frozen=True):
    """A refusal as an answer, not an error: other jobs share the writer's transaction."""

    stored: int


class NewBlob(Struct, frozen=True):
    """A put as jobs of the writer. The row in ``blob`` is written last: without it the pieces do not count."""

    execution: str
    name: str
    data: bytes
    turn: int | None
    limit: int | None

    @property
    def pieces(self) -> int:
        """Return the number of pieces after the first."""
        return max(len(self.data) - 1, 0) // PIECE

    def put_piece(self, number: int, rows: SqliteWorkspace) -> None:
        self._note(rows)
        rows.connection.execute(
            SQL["history.put_piece"], (self.execution, self.name, number, self._piece(number))
        )

    def _is_known(self, rows: SqliteWorkspace) -> bool | Refusal:
        """Return True if it is stored already."""
        connection = rows.connection
        if connection.execute(SQL["history.has_blob"], (self.execution, self.name)).fetchone() is not None:
            touched = {"execution": self.execution, "id": self.name, "turn": self.turn}
            connection.execute(SQL["history.touch_blob"], touched)
            return True
        stored = _stored(connection, self.execution)
        if self.limit is None or stored + len(self.data) <= self.limit:
            return False
        connection.execute(SQL["history.delete_pieces"], (self.execution, self.name))
        return Refusal(stored)

    def finish(self, rows: SqliteWorkspace) -> bool | Refusal:
        """Return True if all of it is stored now.

        Pieces are missing at first, and if an equal blob was pruned meanwhile.
        """
        known = self._is_known(rows)
        if known is not False:
            return known
        connection = rows.connection
        if self.pieces:
            (found,) = connection.execute(SQL["history.count_pieces"], (self.execution, self.name)).fetchone()
            if found < self.pieces:
                return False
        self._note(rows)
        head = (self.execution, self.name, self._piece(0), self.turn, self.pieces)
        connection.execute(SQL["history.put_blob"], head)
        _charge(connection, self.execution, len(self.data))
        return True

    def _piece(self, number: int) -> memoryview:
        return memoryview(self.data)[number * PIECE : (number + 1) * PIECE]

    def _note(self, rows: SqliteWorkspace) -> None:
        rows.large_bytes += min(len(self.data), PIECE)


def prune_piece(piece: tuple[str, str, int], rows: SqliteWorkspace) -> None:
    """Delete a piece. SQLite may overwrite deleted data, which takes as long as writing it."""
    rows.large_bytes += PIECE
    rows.connection.execute(
        SQL["history.prune_piece"], dict(zip(("execution", "id", "number"), piece, strict=True))
    )


def _whole(connection: sqlite3.Connection, execution: str, blob: str) -> bytes | None:
    head = connection.execute(SQL["history.blob"], (execution, blob)).fetchone()
    if head is None:
        return None
    first, pieces = head
    rows = connection.execute(SQL["history.pieces"], (execution, blob)) if pieces else ()
    return b"".join([first, *(data for (data,) in rows)])


def _stored(connection: sqlite3.Connection, execution: str) -> int:
    row = connection.execute(SQL["history.stored_bytes"], (execution,)).fetchone()
    return int(row[0]) if row is not None else 0


def _charge(connection: sqlite3.Connection, execution: str, size: int) -> None:
    connection.execute(SQL["history.charge"], {"execution": execution, "size": size})


class SqliteRecords:
    def __init__(self, store: SqliteStore) -> None:
        self.store = store

    async def put(self, kind: str, id: str, data: bytes, expected: int | None = None) -> Record | None:
        now = self.store.clock.now()

        def change(rows: SqliteWorkspace) -> Record | None:
            row = rows.connection.execute(SQL["records.one"], (kind, id)).fetchone()
            if expected is not None and expected != (Record(*row).version if row is not None else 0):
                return None
            rows.connection.execute(SQL["records.put"], (kind, id, data, now, now))
            return Record(*rows.connection.execute(SQL["records.one"], (kind, id)).fetchone())

        return await self.store.write(change)

    async def get(self, kind: str, id: str) -> Record | None:
        found = await self.store.fetch("records.one", kind, id)
        return Record(*found[0]) if found else None

    async def page(self, kind: str, after: str = "", limit: int = 100) -> list[Record]:
        return [Record(*row) for row in await self.store.fetch("records.page", kind, after, limit)]

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
        return [LogEntry(*row) for row in await self.store.fetch("records.entries", log, last, limit)]

    async def trim(self, log: str, before: float, limit: int = 500) -> int:
        parameters = (log, before, limit)
        return await self.store.write(
            lambda rows: rows.connection.execute(SQL["records.trim"], parameters).rowcount
        )


# -- marks of how far the statuses of executions are published ------------------------------------------------


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
        return dict(await self.store.fetch("publications.last_events", json.dumps(list(executions))))

    async def unfinished(self, after: str = "", limit: int = 1000) -> Unpublished:
        return unpublished_page(await self.store.fetch("publications.unfinished", after, limit), limit)


def _news(connection: sqlite3.Connection, row: tuple[Any, ...], after: int, limit: int) -> News:
    name, workflow, definition, kind, state, priority, tags, is_told, context = row
    events = connection.execute(SQL["archive.events_of"], (name, after, limit))
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
