"""PostgresPublished: published values and streams of executions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dalsegno.adapters.postgres.commit.columns import columns
from dalsegno.adapters.postgres.commit.streams import lock_streams, write_streams
from dalsegno.adapters.postgres.store import PostgresStore, Transaction
from dalsegno.core.published import Fences, KnownStream, KnownValue, array_of, settle_chunks, settle_values
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


class PostgresPublished:
    def __init__(self, store: PostgresStore) -> None:
        self.store = store

    async def values(self, execution: str) -> list[PublishedValue]:
        return [PublishedValue(*row) for row in await self.store.fetch("published.values", execution)]

    async def marks(self, executions: Sequence[str]) -> dict[str, Mark]:
        rows = await self.store.fetch("published.marks", list(executions))
        return {name: Mark(*mark) for name, *mark in rows}

    async def usage(self, execution: str) -> Usage:
        sizes = dict(await self.store.fetch("published.sizes", execution))
        return Usage(sizes, {view.name: view for view in await self.streams(execution)})

    async def publish(self, writes: Sequence[ValueWrite]) -> list[Refusal]:
        async with self.store.transaction() as tx:
            rows = await tx.fetch("published.known_values", _names(writes))
            known = {(execution, key): KnownValue(*row) for execution, key, *row in rows}
            settled = settle_values(writes, await _fences(tx, writes), known)
            saved = [
                (*place, write.data, version, write.token, write.fence, write.passing)
                for place, (write, version) in sorted(settled.saved.items())
            ]
            if settled.removed:
                await tx.fetch("published.remove_values", *columns(sorted(settled.removed), 2))
            written = set(settled.saved)
            if saved:
                made = await tx.fetch("published.save_values", *columns(saved, 7), self.store.now())
                written = {(execution, key) for execution, key in made}
        return [
            refusal or ("" if write.data is None or (write.execution, write.key) in written else "lost")
            for write, refusal in zip(writes, settled.refusals, strict=True)
        ]

    async def append(self, writes: Sequence[ChunkWrite], most_stored: int | None = None) -> list[Refusal]:
        async with self.store.transaction() as tx:
            locked = await lock_streams(tx, [(write.execution, write.stream) for write in writes])
            rows = await tx.fetch("published.known_streams", _names(writes))
            known = {(execution, name): KnownStream(*head) for execution, name, *head in rows}
            known.update({place: head for place, head in locked.items() if head.length or head.closed})
            stored = dict(await tx.fetch("published.stored", _names(writes)))
            fences = await _fences(tx, writes)
            settled = settle_chunks(writes, fences, known, stored, most_stored)
            now = self.store.now()
            parts = [
                (
                    part.write.execution,
                    part.write.stream,
                    part.first,
                    len(part.write.chunks),
                    now,
                    part.write.task,
                    part.write.attempt,
                    part.restarts,
                    array_of(part.write.chunks),
                )
                for part in settled.parts
            ]
            if settled.changed:
                await write_streams(tx, settled.changed, parts)
            if settled.charges:
                await tx.fetch("published.charge", *columns(sorted(settled.charges.items()), 2))
        return settled.refusals

    async def streams(self, execution: str) -> list[StreamView]:
        return [StreamView(*row) for row in await self.store.fetch("published.streams", execution)]

    async def lengths(self, streams: Sequence[tuple[str, str]]) -> dict[tuple[str, str], StreamView]:
        rows = await self.store.fetch("published.lengths", *columns(streams, 2))
        return {(execution, name): StreamView(name, *row) for execution, name, *row in rows}

    async def parts(
        self, execution: str, stream: str, offset: int = 0, limit: int = PARTS
    ) -> list[StreamPart]:
        rows = await self.store.fetch("published.parts", execution, stream, offset, limit)
        return [StreamPart(*row) for row in rows]


def _names(writes: Iterable[ValueWrite | ChunkWrite]) -> list[str]:
    return sorted({write.execution for write in writes})


async def _fences(tx: Transaction, writes: Iterable[ValueWrite | ChunkWrite]) -> Fences:
    places = sorted({(write.execution, write.token) for write in writes})
    rows = await tx.fetch("published.fences", *columns(places, 2))
    return {(execution, token): fence for execution, token, fence in rows}
