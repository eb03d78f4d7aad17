"""Published values and chunks of streams as server-sent events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from typing import TypeVar

import msgspec

from dalsegno.engine.operations.published import Followers, StreamChunk
from dalsegno.errors import NotFound, OperatorError
from dalsegno.model.published import PROGRESS, PublishedValue
from dalsegno.server.schemas.values import moment
from dalsegno.server.streams.execution_feed import HEARTBEAT, OPENING, frame

logger = logging.getLogger("dalsegno.server")

E = TypeVar("E")
T = TypeVar("T")


def value_frames(rows: Sequence[PublishedValue]) -> bytes:
    """Return the frames of published values. They have no number: a reader gets the newest values anew."""
    return b"".join(_value_frame(row) for row in rows)


def _value_frame(row: PublishedValue) -> bytes:
    is_progress = row.key == PROGRESS or row.key.startswith(f"{PROGRESS}/")
    fields = {
        "key": row.key,
        "value": msgspec.Raw(row.data),
        "version": row.version,
        "at": moment(row.at),
    }
    return frame("progress" if is_progress else "published", fields)


def _chunk_frame(chunk: StreamChunk) -> bytes:
    fields = {
        "offset": chunk.offset,
        "value": chunk.value,
        "task": chunk.task,
        "attempt": chunk.attempt,
        "restarts": chunk.restarts,
        "at": moment(chunk.at),
    }
    return b"id: %d\n%b" % (chunk.offset, frame("chunk", fields))


async def published_stream(
    followers: Followers, execution: str, keys: Collection[str], closing: asyncio.Event, heartbeat: float
) -> AsyncGenerator[bytes]:
    """Stream the values of an execution until its end. Ends early, without the last frame, if the server stops."""
    yield OPENING
    try:
        async with aclosing(_beating(followers.changes(execution, keys), closing, heartbeat)) as batches:
            async for rows in batches:
                yield value_frames(rows) if rows is not None else HEARTBEAT
        if not closing.is_set():
            yield frame("end", {})
    except (OperatorError, NotFound) as error:
        logger.warning("the published values of %s are interrupted: %s", execution, error)


async def chunk_stream(
    followers: Followers, execution: str, name: str, offset: int, closing: asyncio.Event, heartbeat: float
) -> AsyncGenerator[bytes]:
    """Stream the chunks of a stream until it is closed or its execution has ended."""
    yield OPENING
    try:
        async with aclosing(
            _beating(followers.batches(execution, name, offset), closing, heartbeat)
        ) as batches:
            async for chunks in batches:
                if chunks is None:
                    yield HEARTBEAT
                else:
                    offset = chunks[-1].offset + 1
                    yield b"".join(map(_chunk_frame, chunks))
        if not closing.is_set():
            yield frame("end", {"next": offset})
    except (OperatorError, NotFound) as error:
        logger.warning("the stream %s of %s is interrupted: %s", name, execution, error)


async def beside(
    events: AsyncGenerator[Sequence[E]], values: AsyncGenerator[list[PublishedValue]] | None
) -> AsyncGenerator[tuple[Sequence[E] | None, list[PublishedValue] | None]]:
    """Yield batches of events, and of values as they change, until the events end."""
    coming = asyncio.ensure_future(anext(events))
    changing = asyncio.ensure_future(anext(values)) if values is not None else None
    try:
        while True:
            await asyncio.wait([each for each in (coming, changing) if each], return_when="FIRST_COMPLETED")
            if changing is not None and values is not None and changing.done():
                rows = _next_rows(changing)
                changing = asyncio.ensure_future(anext(values)) if rows is not None else None
                if rows:
                    yield None, rows
            if coming.done():
                try:
                    batch = coming.result()
                except StopAsyncIteration:
                    return
                coming = asyncio.ensure_future(anext(events))
                yield batch, None
    finally:
        for each in (coming, changing):
            if each is not None:
                each.cancel()
                await asyncio.gather(each, return_exceptions=True)
        await events.aclose()
        if values is not None:
            await values.aclose()


def _next_rows(changing: asyncio.Future[list[PublishedValue]]) -> list[PublishedValue] | None:
    """Return the next values; None if they are complete, or cannot be read."""
    try:
        return changing.result()
    except (StopAsyncIteration, NotFound, OperatorError):
        return None


async def _beating(
    batches: AsyncGenerator[list[T]], closing: asyncio.Event, heartbeat: float
) -> AsyncGenerator[list[T] | None]:
    """Yield the batches, and None after each silence of so many seconds, until they end or the server stops."""
    stop = asyncio.ensure_future(closing.wait())
    coming: asyncio.Future[list[T]] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(batches))
            await asyncio.wait((coming, stop), timeout=heartbeat, return_when="FIRST_COMPLETED")
            if coming.done():
                try:
                    batch = coming.result()
                except StopAsyncIteration:
                    return
                coming = None
                yield batch
            elif stop.done():
                return
            else:
                yield None
    finally:
        stop.cancel()
        if coming is not None:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
        await batches.aclose()
