"""Published values and streams as readers follow them: one poll for all that is followed in this process.

Commits and writes of this process are noticed at once. What others write is found by polling, more seldom the more
executions are followed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec

from dalsegno.errors import NotFound, OperatorError
from dalsegno.model.effect import AppendChunks, PublishValues
from dalsegno.model.execution import ENDED
from dalsegno.model.published import Mark, PublishedValue, StreamPart, StreamView
from dalsegno.model.transition import Applied, Transition
from dalsegno.ports.archive import Archive
from dalsegno.ports.published import PublishedData

logger = logging.getLogger("dalsegno.published")

EVERY, SLOWEST = 0.2, 2.0
"""Seconds between two polls of few executions, and of many."""
FEW = 100
"""Executions up to which the poll is at its fastest."""
SOON = 0.02
"""Seconds for which notices of this process are gathered."""
AT_ONCE = 1000
"""Executions, or streams, of one query."""
DONE = "no longer there"


@dataclass(frozen=True, slots=True)
class Published:
    """A published value. ``version`` counts its changes; of quick changes a reader may miss all but the last."""

    key: str
    value: Any
    version: int
    at: float


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """A chunk of a stream. ``task`` is empty for chunks of the workflow itself.

    ``restarts``: the task that wrote before has begun anew with this chunk; what its earlier attempts wrote no longer
    counts.
    """

    offset: int
    value: Any
    task: str
    attempt: int
    restarts: bool
    at: float


def published_of(row: PublishedValue) -> Published:
    return Published(row.key, msgspec.json.decode(row.data), row.version, row.at)


def chunks_of(part: StreamPart, offset: int) -> list[StreamChunk]:
    """Return the chunks of a part from this offset on."""
    values = msgspec.json.decode(part.data)
    return [
        StreamChunk(part.first + place, value, part.task, part.attempt, part.restarts and place == 0, part.at)
        for place, value in enumerate(values)
        if part.first + place >= offset
    ]


class News:
    """The rows that a reader has not seen yet."""

    def __init__(self, keys: Collection[str] = ()) -> None:
        self._keys = keys
        self._seen: dict[str, tuple[int, float]] = {}

    def take(self, rows: Sequence[PublishedValue]) -> list[PublishedValue]:
        """Return those of these rows that changed since the last call."""
        found = [
            row
            for row in rows
            if self._seen.get(row.key) != (row.version, row.at) and (not self._keys or row.key in self._keys)
        ]
        self._seen.update({row.key: (row.version, row.at) for row in found})
        return found


class Followed:
    """One execution that is followed: its newest values, and whether it has ended."""

    def __init__(self) -> None:
        self.readers = 0
        self.mark = Mark()
        self.values: Sequence[PublishedValue] = ()
        self.state = ""
        """Its state, or `DONE` once it was removed; empty while nobody has looked."""
        self.streams: dict[str, StreamView] = {}
        self.wanted: dict[str, int] = {}
        """Streams that are read, with the number of their readers."""
        self.changed = asyncio.Event()

    @property
    def is_over(self) -> bool:
        return self.state in ENDED or self.state == DONE

    def announce(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class Followers:
    """All that is followed in this process."""

    def __init__(self, published: PublishedData, archive: Archive) -> None:
        self._published = published
        self._archive = archive
        self.followed: dict[str, Followed] = {}
        """By execution. Empty, nothing of this costs a commit anything."""
        self._polling: asyncio.Task[None] | None = None
        self._soon = asyncio.Event()
        self._closed = False

    # -- reading ----------------------------------------------------------------------------------------------

    async def current(self, execution: str) -> dict[str, Any]:
        """Return the newest value of each key."""
        await self._expect(execution)
        rows = await self._published.values(execution)
        return {row.key: msgspec.json.decode(row.data) for row in rows}

    async def rows(self, execution: str) -> list[PublishedValue]:
        await self._expect(execution)
        return await self._published.values(execution)

    async def newest(self, execution: str) -> list[PublishedValue]:
        """Return the published values; none of an execution that was removed."""
        return await self._published.values(execution)

    async def streams(self, execution: str) -> list[StreamView]:
        await self._expect(execution)
        return await self._published.streams(execution)

    async def _expect(self, execution: str) -> None:
        if not await self._archive.states([execution]):
            raise NotFound(f"there is no execution {execution} in this store")

    async def page(self, execution: str, stream: str, offset: int, most: int) -> list[StreamChunk]:
        """Return chunks from an offset on, at most so many."""
        found: list[StreamChunk] = []
        while len(found) < most:
            parts = await self._published.parts(execution, stream, offset)
            for part in parts:
                found += chunks_of(part, offset)
                offset = part.first + part.count
            if not parts:
                break
        return found[:most]

    async def watch(self, execution: str, keys: Collection[str] = ()) -> AsyncIterator[Published]:
        """Yield the values that there are, and then each change, until the execution has ended."""
        async with aclosing(self.changes(execution, keys)) as batches:
            async for rows in batches:
                for row in rows:
                    yield published_of(row)

    async def changes(
        self, execution: str, keys: Collection[str] = ()
    ) -> AsyncGenerator[list[PublishedValue]]:
        """Yield the values that there are, and then those that have changed, until the execution has ended."""
        news = News(keys)
        await self._expect(execution)
        with self.following(execution) as followed:
            while True:
                changed, is_over = followed.changed, followed.is_over
                if self._closed:
                    return
                # At the end they are read once more: a last write may have come after the poll.
                rows = await self._published.values(execution) if is_over else followed.values
                if rows := news.take(rows):
                    yield list(rows)
                if is_over:
                    return
                await changed.wait()

    async def follow(self, execution: str, stream: str, offset: int = 0) -> AsyncIterator[StreamChunk]:
        """Yield the chunks of a stream from an offset on, until it is closed or the execution has ended."""
        async with aclosing(self.batches(execution, stream, offset)) as batches:
            async for chunks in batches:
                for chunk in chunks:
                    yield chunk

    async def batches(
        self, execution: str, stream: str, offset: int = 0
    ) -> AsyncGenerator[list[StreamChunk]]:
        await self._expect(execution)
        with self.following(execution, stream) as followed:
            while True:
                changed, is_over = followed.changed, followed.is_over
                known = followed.streams.get(stream)
                is_closed = known is not None and known.closed
                while not self._closed and (page := await self._published.parts(execution, stream, offset)):
                    chunks = [chunk for part in page for chunk in chunks_of(part, offset)]
                    offset = page[-1].first + page[-1].count
                    yield chunks
                if is_over or is_closed or self._closed:
                    return
                await changed.wait()

    @contextlib.contextmanager
    def following(self, execution: str, stream: str = "") -> Iterator[Followed]:
        """Follow an execution, and one of its streams."""
        followed = self.followed.setdefault(execution, Followed())
        followed.readers += 1
        if stream:
            followed.wanted[stream] = followed.wanted.get(stream, 0) + 1
        if not self._closed and (self._polling is None or self._polling.done()):
            self._polling = asyncio.get_running_loop().create_task(self._poll_all(), name="published values")
        self._soon.set()
        try:
            yield followed
        finally:
            followed.readers -= 1
            if stream:
                followed.wanted[stream] -= 1
                if not followed.wanted[stream]:
                    del followed.wanted[stream]
            if not followed.readers and self.followed.get(execution) is followed:
                del self.followed[execution]

    async def close(self) -> None:
        """End all readers: the store is about to be closed."""
        self._closed = True
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
        for followed in self.followed.values():
            followed.announce()

    # -- notices ----------------------------------------------------------------------------------------------

    def applied(self, transition: Transition, applied: Applied) -> None:
        """Notice a commit of this process."""
        if transition.execution not in self.followed:
            return
        if applied.ended is not None or any(
            type(effect) in (PublishValues, AppendChunks) for effect in transition.effects
        ):
            self._soon.set()

    def notice(self, execution: str) -> None:
        """Notice a write of a task of this process."""
        if execution in self.followed:
            self._soon.set()

    # -- polling ----------------------------------------------------------------------------------------------

    async def _poll_all(self) -> None:
        while self.followed:
            self._soon.clear()
            try:
                await self._poll()
            except OperatorError as error:
                logger.warning("published values cannot be read now (%s)", error)
            pause = min(EVERY * max(len(self.followed) / FEW, 1.0), SLOWEST)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._soon.wait()
                    await asyncio.sleep(min(SOON, pause))

    async def _poll(self) -> None:
        names = list(self.followed)
        for first in range(0, len(names), AT_ONCE):
            await self._poll_some(names[first : first + AT_ONCE])

    async def _poll_some(self, names: Sequence[str]) -> None:
        # The states first: what is read after an end is complete.
        states = await self._archive.states(names)
        marks = await self._published.marks(names)
        wanted = [
            (name, each) for name in names if name in self.followed for each in self.followed[name].wanted
        ]
        streams = await self._published.lengths(wanted[:AT_ONCE]) if wanted else {}
        for name in names:
            followed = self.followed.get(name)
            if followed is None:
                continue
            state, mark = states.get(name, DONE), marks.get(name, Mark())
            changed = state != followed.state or mark != followed.mark
            if mark != followed.mark:
                followed.values = await self._published.values(name)
            followed.mark, followed.state = mark, state
            own = {each: streams[name, each] for each in followed.wanted if (name, each) in streams}
            if changed or own != followed.streams:
                followed.streams = own
                followed.announce()
