"""Streams in a transaction: the head of a stream, and the chunks that are appended together."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.core.published import KnownStream, accept_chunks, array_of, begins_anew
from dalsegno.model.effect import AppendChunks

Place = tuple[str, str]
"""An execution, and the name of a stream of it."""


def append(connection: sqlite3.Connection, execution: str, change: AppendChunks, at: float) -> None:
    """Append the chunks of a commit, unless the stream is full."""
    place = (execution, change.stream)
    row = connection.execute(SQL["published.stream"], place).fetchone()
    head = KnownStream(*row) if row is not None else KnownStream()
    first = head.length
    anew = begins_anew(head, change.stream, change.token, change.fence)
    if not accept_chunks(head, change):
        return
    save_stream(connection, place, head)
    if change.chunks:
        add_part(connection, place, first, change.chunks, (at, change.task, change.attempt, anew))


def save_stream(connection: sqlite3.Connection, place: Place, head: KnownStream) -> None:
    row = (*place, head.length, head.bytes, head.closed, head.token, head.fence)
    connection.execute(SQL["published.save_stream"], row)


def add_part(
    connection: sqlite3.Connection,
    place: Place,
    first: int,
    chunks: Sequence[bytes],
    written: tuple[float, str, int, bool],
) -> None:
    """Add a part. ``written``: its time, its task, the attempt, and whether that begins anew."""
    row = (*place, first, len(chunks), *written, array_of(chunks))
    connection.execute(SQL["published.add_part"], row)
