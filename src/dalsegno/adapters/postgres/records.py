"""PostgresRecords: records and logs in tables of their own."""

from __future__ import annotations

import asyncio

from dalsegno.adapters.postgres.store import PostgresStore
from dalsegno.errors import DalSegnoError
from dalsegno.ports.records import LogEntry, Record

BEYOND_ENTRIES = 2**62
Unwritten = tuple[float, tuple[bytes, ...], asyncio.Future[int]]


class PostgresRecords:
    """Every call is one statement, and so is every comparison: no two processes can come in between. What is appended
    to a log while an entry is on its way goes with the next statement, in the order of the calls."""

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
    """Whoever asked may have gone."""
    if number.done():
        return
    if isinstance(answer, int):
        number.set_result(answer)
    elif isinstance(answer, Exception):
        number.set_exception(answer)
    else:
        number.cancel()
