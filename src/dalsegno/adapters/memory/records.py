"""MemoryRecords: records and logs in dictionaries."""

from __future__ import annotations

from itertools import islice

import msgspec

from dalsegno.adapters.memory.store import MemoryStore
from dalsegno.ports.clock import Clock
from dalsegno.ports.records import LogEntry, Record


class MemoryRecords:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self.store = store
        self.clock = clock

    async def put(self, kind: str, id: str, data: bytes, expected: int | None = None) -> Record | None:
        known, now = self.store.records.get((kind, id)), self.clock.now()
        if expected is not None and expected != (known.version if known is not None else 0):
            return None
        if known is None:
            made = Record(kind, id, data, 1, now, now)
        else:
            made = msgspec.structs.replace(known, data=data, version=known.version + 1, changed_at=now)
        self.store.records[kind, id] = made
        return made

    async def get(self, kind: str, id: str) -> Record | None:
        return self.store.records.get((kind, id))

    async def page(self, kind: str, after: str = "", limit: int = 100) -> list[Record]:
        found = [record for (of, name), record in self.store.records.items() if of == kind and name > after]
        return sorted(found, key=lambda record: record.id)[:limit]

    async def remove(self, kind: str, id: str, expected: int | None = None) -> bool:
        known = self.store.records.get((kind, id))
        if known is None or expected not in (None, known.version):
            return False
        del self.store.records[kind, id]
        return True

    async def append(self, log: str, *data: bytes) -> int:
        entries = self.store.logs.setdefault(log, [])
        for each in data:
            self.store.log_number += 1
            entries.append(LogEntry(self.store.log_number, self.clock.now(), each))
        return self.store.log_number

    async def entries(self, log: str, before: int | None = None, limit: int = 100) -> list[LogEntry]:
        found = reversed(self.store.logs.get(log, []))
        return list(islice((each for each in found if before is None or each.number < before), limit))

    async def trim(self, log: str, before: float, limit: int = 500) -> int:
        entries = self.store.logs.get(log, [])
        gone = 0
        while gone < min(limit, len(entries)) and entries[gone].at < before:
            gone += 1
        del entries[:gone]
        return gone
