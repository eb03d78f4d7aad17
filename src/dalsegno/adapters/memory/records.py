"""MemoryRecords, MemoryBlobs and MemoryPublications: records, logs, large values, and marks of how far statuses are
published.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from itertools import islice

import msgspec

from dalsegno.adapters.memory.store import MemoryExecution, MemoryStore
from dalsegno.errors import NotFound
from dalsegno.model.execution import ENDED
from dalsegno.model.token import UNFINISHED
from dalsegno.ports.clock import Clock
from dalsegno.ports.messages import Claims, News, Unpublished, unpublished_page
from dalsegno.ports.records import LogEntry, Record, refuse_over


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


class MemoryBlobs:
    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    async def put(
        self, execution: str, data: bytes, *, turn: int | None = None, limit: int | None = None
    ) -> str:
        blob = sha256(data).hexdigest()
        key = (execution, blob)
        if key not in self.store.blobs:
            await self.charge(execution, len(data), limit=limit)
            self.store.blobs[key] = data
            if turn is not None:
                self.store.blob_turns[key] = turn
        elif turn is None:
            self.store.blob_turns.pop(key, None)
        elif key in self.store.blob_turns:
            self.store.blob_turns[key] = max(self.store.blob_turns[key], turn)
        return blob

    async def get(self, execution: str, blob: str) -> bytes:
        try:
            return self.store.blobs[execution, blob]
        except KeyError:
            raise NotFound(f"execution {execution} has no blob {blob}") from None

    async def stored(self, execution: str) -> int:
        return self.store.stored_bytes.get(execution, 0)

    async def charge(self, execution: str, size: int, *, limit: int | None = None) -> None:
        stored = self.store.stored_bytes.get(execution, 0)
        refuse_over(stored, size, limit)
        self.store.stored_bytes[execution] = max(stored + size, 0)

    async def prune(self, execution: str, turn: int, keep: Collection[str]) -> None:
        turns = self.store.blob_turns
        for key in [
            key
            for key, put_in in turns.items()
            if key[0] == execution and put_in < turn and key[1] not in keep
        ]:
            await self._forget(key)

    async def remove(self, execution: str, blobs: Collection[str]) -> None:
        for key in [(execution, blob) for blob in blobs]:
            if key in self.store.blob_turns:
                await self._forget(key)

    async def _forget(self, key: tuple[str, str]) -> None:
        del self.store.blob_turns[key]
        await self.charge(key[0], -len(self.store.blobs.pop(key)))


# -- marks of how far the statuses of executions are published ------------------------------------------------


class MemoryPublications:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self.store = store
        self.clock = clock

    async def claim(self, owner: str, executions: Sequence[str], seconds: float) -> Claims:
        claims, now = Claims({}, set()), self.clock.now()
        for execution in executions:
            mark = self.store.publications.get(execution)
            if mark is None:
                continue
            if mark.owner in (None, owner) or mark.until <= now:
                mark.owner, mark.until = owner, now + seconds
                claims.marks[execution] = mark.confirmed
            else:
                claims.held.add(execution)
        return claims

    async def confirm(self, owner: str, confirmed: Mapping[str, int], ended: Collection[str] = ()) -> None:
        for execution in {*confirmed, *ended}:
            mark = self.store.publications.get(execution)
            if mark is None or mark.owner not in (None, owner):
                continue
            if execution in ended:
                del self.store.publications[execution]
            else:
                mark.confirmed = max(mark.confirmed, confirmed[execution])
                mark.owner = None

    async def news(self, after: Mapping[str, int], limit: int = 1000) -> dict[str, News]:
        found = {name: self.store.executions.get(name) for name in after}
        return {
            name: News(
                stored.new.workflow,
                stored.new.definition,
                stored.row.kind,
                stored.row.state,
                stored.row.priority,
                stored.new.tags,
                stored.events[after[name] : after[name] + limit],
                is_told=(is_told := _is_told(stored)),
                context=stored.row.context if is_told else None,
            )
            for name, stored in found.items()
            if stored is not None
        }

    async def last_events(self, executions: Sequence[str]) -> dict[str, int]:
        found = {name: self.store.executions.get(name) for name in executions}
        return {name: stored.row.seq for name, stored in found.items() if stored is not None}

    async def unfinished(self, after: str = "", limit: int = 1000) -> Unpublished:
        page = sorted(name for name in self.store.publications if name > after)[:limit]
        rows = [(name, self._has_more(name, self.store.publications[name].confirmed)) for name in page]
        return unpublished_page(rows, limit)

    def _has_more(self, execution: str, confirmed: int) -> bool:
        found = self.store.executions.get(execution)
        return found is None or found.swept or found.row.seq > confirmed


def _is_told(execution: MemoryExecution) -> bool:
    if execution.row.state not in ENDED:
        return False
    return not any(token.state in UNFINISHED for token in execution.tokens.values())
