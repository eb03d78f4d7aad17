"""PostgresRecords, PostgresBlobs and PostgresPublications: records, logs, large values, and marks of how far statuses
are published.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from hashlib import sha256

from dalsegno.adapters.postgres.store import PostgresStore
from dalsegno.errors import DalSegnoError, LimitExceeded, NotFound
from dalsegno.model.event import Event
from dalsegno.ports.messages import Claims, News, Unpublished, unpublished_page
from dalsegno.ports.records import LogEntry, Record, refuse_over

MAX_BYTES = 512 * 1024 * 1024
"""PostgreSQL's limit is a billion bytes per value, and a value is held in memory whole."""

LARGE, LARGE_AT_ONCE = 1024 * 1024, 2
"""Blobs above this size, and how many of them are transferred at a time: each holds a connection and is copied in
the event loop.
"""


class PostgresBlobs:
    def __init__(self, store: PostgresStore, max_bytes: int = MAX_BYTES) -> None:
        self.store = store
        self.max_bytes = max_bytes
        self._few = asyncio.Semaphore(LARGE_AT_ONCE)

    async def put(
        self, execution: str, data: bytes, *, turn: int | None = None, limit: int | None = None
    ) -> str:
        if len(data) > self.max_bytes:
            raise LimitExceeded(
                f"a value of {len(data)} bytes is larger than the limit of {self.max_bytes} bytes per blob"
            )
        blob = await asyncio.to_thread(lambda: sha256(data).hexdigest())
        if limit is not None and len(data) > limit:
            refuse_over(await self.stored(execution), len(data), limit)  # before the bytes are sent
        put = partial(self.store.fetch, "blobs.put", execution, blob, data, turn, limit)
        async with self._few if len(data) > LARGE else nullcontext():
            while not (stored := await put()):
                if not await self.store.fetch("blobs.has", execution, blob):  # otherwise it was put meanwhile
                    refuse_over(await self.stored(execution), len(data), limit)
        if stored[0]["is_new"] != stored[0]["is_charged"]:
            await self.charge(execution, len(data) if stored[0]["is_new"] else -len(data))
        return blob

    async def get(self, execution: str, blob: str) -> bytes:
        rows = await self.store.fetch("blobs.one", execution, blob)
        if not rows:
            raise NotFound(f"execution {execution} has no blob {blob}")
        return bytes(rows[0][0])

    async def charge(self, execution: str, size: int, *, limit: int | None = None) -> None:
        async with self.store.transaction() as rows:
            [count] = await rows.fetch("blobs.charge", execution, size)
            refuse_over(count["bytes"] - size, size, limit)

    async def prune(self, execution: str, turn: int, keep: Collection[str]) -> None:
        await self.store.fetch("blobs.prune", execution, turn, list(keep))

    async def remove(self, execution: str, blobs: Collection[str]) -> None:
        await self.store.fetch("blobs.remove", execution, list(blobs))

    async def stored(self, execution: str) -> int:
        rows = await self.store.fetch("blobs.stored", execution)
        return rows[0][0] if rows else 0


BEYOND_ENTRIES = 2**62
Unwritten = tuple[float, tuple[bytes, ...], asyncio.Future[int]]


class PostgresRecords:
    """Every call is one statement, including its comparison: no other process can come in between.

    Log entries appended while another is being written go with the next statement, in the order of the calls.
    """

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self._unwritten: dict[str, list[Unwritten]] = {}
        self._writers: dict[str, asyncio.Task[None]] = {}

    async def put(self, kind: str, id: str, data: bytes, expected: int | None = None) -> Record | None:
        given: tuple[object, ...] = (kind, id, data, self.store.now())
        if expected is None:
            rows = await self.store.fetch("records.put", *given)
        elif expected == 0:
            rows = await self.store.fetch("records.create", *given)
        else:
            rows = await self.store.fetch("records.change", *given, expected)
        return Record(*rows[0]) if rows else None

    async def get(self, kind: str, id: str) -> Record | None:
        rows = await self.store.fetch("records.one", kind, id)
        return Record(*rows[0]) if rows else None

    async def page(self, kind: str, after: str = "", limit: int = 100) -> list[Record]:
        return [Record(*row) for row in await self.store.fetch("records.page", kind, after, limit)]

    async def remove(self, kind: str, id: str, expected: int | None = None) -> bool:
        return bool(await self.store.fetch("records.remove", kind, id, expected))

    async def append(self, log: str, *data: bytes) -> int:
        loop = asyncio.get_running_loop()
        number: asyncio.Future[int] = loop.create_future()
        self._unwritten.setdefault(log, []).append((self.store.now(), data, number))
        if log not in self._writers:
            self._writers[log] = loop.create_task(self._write(log))
        return await number

    async def _write(self, log: str) -> None:
        try:
            while batch := self._unwritten.pop(log, None):
                await self._write_together(log, batch)
        finally:
            del self._writers[log]

    async def _write_together(self, log: str, batch: list[Unwritten]) -> None:
        times = [at for at, entries, _ in batch for _ in entries]
        texts = [text for _, entries, _ in batch for text in entries]
        try:
            rows = await self.store.fetch("records.append", log, times, texts)
        except BaseException as error:
            for *_, number in batch:
                _settle(number, error)
            if not isinstance(error, DalSegnoError):
                raise
            return
        numbers, written = sorted(int(given) for (given,) in rows), 0
        for _, entries, number in batch:
            written += len(entries)
            _settle(number, numbers[written - 1])

    async def entries(self, log: str, before: int | None = None, limit: int = 100) -> list[LogEntry]:
        last = before if before is not None else BEYOND_ENTRIES
        return [LogEntry(*row) for row in await self.store.fetch("records.entries", log, last, limit)]

    async def trim(self, log: str, before: float, limit: int = 500) -> int:
        return len(await self.store.fetch("records.trim", log, before, limit))


def _settle(number: asyncio.Future[int], answer: int | BaseException) -> None:
    """Set the result, unless the caller has been cancelled."""
    if number.done():
        return
    if isinstance(answer, int):
        number.set_result(answer)
    elif isinstance(answer, Exception):
        number.set_exception(answer)
    else:
        number.cancel()


# -- marks of how far the statuses of executions are published ------------------------------------------------


class PostgresPublications:
    """Every call is one statement; where there are new events, another one reads them."""

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
        heads = await self.store.fetch("publications.heads", list(after), list(after.values()))
        found = {name: _news(*head) for name, *head, _ in heads}
        names = [head[0] for head in heads if head[-1]]
        if names:
            numbers = [after[name] for name in names]
            for name, *event in await self.store.fetch("publications.events", names, numbers, limit):
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
