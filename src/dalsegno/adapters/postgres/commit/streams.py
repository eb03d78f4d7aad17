"""Published values and streams in a transaction: what turns publish and append."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dalsegno.adapters.postgres.commit.columns import columns
from dalsegno.adapters.postgres.store import Transaction
from dalsegno.core.published import KnownStream, accept_chunks, array_of, begins_anew
from dalsegno.model.effect import AppendChunks

Place = tuple[str, str]
"""An execution, and the name of a stream of it."""


async def publish(tx: Transaction, values: Mapping[Place, tuple[bytes, float]]) -> None:
    """Publish values. Rows are locked in the order of their keys, here and in writes of tasks."""
    rows = [(*place, *values[place]) for place in sorted(values)]
    await tx.fetch("published.publish", *columns(rows, 4))


async def append(tx: Transaction, appended: Sequence[tuple[str, AppendChunks, float]]) -> None:
    """Append the chunks of commits, unless their streams are full."""
    heads = await lock_streams(tx, [(execution, change.stream) for execution, change, _ in appended])
    parts: list[tuple[Any, ...]] = []
    for execution, change, at in appended:
        place = (execution, change.stream)
        head = heads[place]
        first = head.length
        anew = begins_anew(head, change.stream, change.token, change.fence)
        if accept_chunks(head, change) and change.chunks:
            written = (at, change.task, change.attempt, anew, array_of(change.chunks))
            parts.append((*place, first, len(change.chunks), *written))
    await write_streams(tx, heads, parts)


async def lock_streams(tx: Transaction, places: Sequence[Place]) -> dict[Place, KnownStream]:
    """Lock these streams in the order of their names, those that do not exist yet too; return what they hold."""
    wanted = sorted(set(places))
    rows = await tx.fetch("published.lock_streams", *columns(wanted, 2))
    return {(execution, name): KnownStream(*head) for execution, name, *head in rows}


async def write_streams(
    tx: Transaction, heads: Mapping[Place, KnownStream], parts: Sequence[tuple[Any, ...]]
) -> None:
    rows = [
        (*place, head.length, head.bytes, head.closed, head.token, head.fence)
        for place, head in heads.items()
    ]
    await tx.fetch("published.write_streams", *columns(rows, 7), *columns(parts, 9))
