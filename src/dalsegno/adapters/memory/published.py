"""MemoryPublished: published values and streams of executions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dalsegno.adapters.memory.store import MemoryExecution, MemoryStore, MemoryValue
from dalsegno.core.published import Fences, KnownStream, KnownValue, array_of, settle_chunks, settle_values
from dalsegno.model.execution import ENDED
from dalsegno.model.published import (
    ChunkWrite,
    Mark,
    PublishedValue,
    Refusal,
    StreamPart,
    StreamView,
    Usage,
    ValueWrite,
    mark_of,
)
from dalsegno.ports.clock import Clock
from dalsegno.ports.published import PARTS


class MemoryPublished:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self.store = store
        self.clock = clock

    async def values(self, execution: str) -> list[PublishedValue]:
        found = self.store.executions.get(execution)
        return _values(found) if found is not None else []

    async def marks(self, executions: Sequence[str]) -> dict[str, Mark]:
        found = {name: await self.values(name) for name in executions}
        return {name: mark_of(values) for name, values in found.items() if values}

    async def usage(self, execution: str) -> Usage:
        found = self.store.executions.get(execution)
        if found is None:
            return Usage()
        sizes = {key: len(row.data) for key, row in found.values.items()}
        return Usage(sizes, {view.name: view for view in _streams(found)})

    async def publish(self, writes: Sequence[ValueWrite]) -> list[Refusal]:
        known = {
            (each.id, key): KnownValue(len(row.data), row.version, row.token, row.fence)
            for each in self._named(write.execution for write in writes)
            for key, row in each.values.items()
        }
        settled = settle_values(writes, self._fences(writes), known)
        for (execution, key), (write, version) in settled.saved.items():
            row = MemoryValue(
                write.data or b"", version, self.clock.now(), write.token, write.fence, write.passing
            )
            self.store.executions[execution].values[key] = row
        for execution, key in settled.removed:
            self.store.executions[execution].values.pop(key, None)
        return settled.refusals

    async def append(self, writes: Sequence[ChunkWrite], most_stored: int | None = None) -> list[Refusal]:
        known: dict[tuple[str, str], KnownStream] = {
            (each.id, name): stream.head
            for each in self._named(write.execution for write in writes)
            for name, stream in each.streams.items()
        }
        settled = settle_chunks(writes, self._fences(writes), known, self.store.stored_bytes, most_stored)
        for (execution, name), head in settled.changed.items():
            self.store.executions[execution].stream(name).head = head
        for part in settled.parts:
            write = part.write
            made = StreamPart(
                part.first,
                len(write.chunks),
                self.clock.now(),
                write.task,
                write.attempt,
                part.restarts,
                array_of(write.chunks),
            )
            self.store.executions[write.execution].stream(write.stream).parts.append(made)
        for execution, size in settled.charges.items():
            self.store.stored_bytes[execution] = self.store.stored_bytes.get(execution, 0) + size
        return settled.refusals

    async def streams(self, execution: str) -> list[StreamView]:
        found = self.store.executions.get(execution)
        return _streams(found) if found is not None else []

    async def lengths(self, streams: Sequence[tuple[str, str]]) -> dict[tuple[str, str], StreamView]:
        found = {
            (execution, view.name): view for execution, _ in streams for view in await self.streams(execution)
        }
        return {place: found[place] for place in streams if place in found}

    async def parts(
        self, execution: str, stream: str, offset: int = 0, limit: int = PARTS
    ) -> list[StreamPart]:
        found = self.store.executions.get(execution)
        if found is None or stream not in found.streams:
            return []
        return [part for part in found.streams[stream].parts if part.first + part.count > offset][:limit]

    def _named(self, executions: Iterable[str]) -> list[MemoryExecution]:
        found = (self.store.executions.get(name) for name in dict.fromkeys(executions))
        return [each for each in found if each is not None]

    def _fences(self, writes: Iterable[ValueWrite | ChunkWrite]) -> Fences:
        rows = {
            (write.execution, write.token): self.store.token(write.execution, write.token) for write in writes
        }
        return {place: row.fence for place, row in rows.items() if row is not None and row.state == "leased"}


def _values(found: MemoryExecution) -> list[PublishedValue]:
    has_ended = found.row.state in ENDED
    return [
        PublishedValue(key, row.data, row.version, row.at)
        for key, row in sorted(found.values.items())
        if not (row.passing and has_ended)
    ]


def _streams(found: MemoryExecution) -> list[StreamView]:
    return [
        StreamView(name, stream.head.length, stream.head.bytes, stream.head.closed)
        for name, stream in sorted(found.streams.items())
    ]
