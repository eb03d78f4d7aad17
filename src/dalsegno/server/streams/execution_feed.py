"""Feeds of executions: one reader per watched execution, shared by all its watchers, as server-sent events.

A commit of this process wakes the readers it concerns; commits of other processes are found by a slow query over
all watched executions. A reader caches the newest events. A watcher that is further behind reads the archive
itself, so that a slow watcher neither delays the others nor misses events. Positions are event numbers, which the
store assigns without gaps: no event is repeated or skipped, whichever of the two sources it comes from.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from dalsegno.errors import OperatorError
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionView
from dalsegno.model.failure import Failure
from dalsegno.model.token import Lease
from dalsegno.model.transition import Applied, Transition
from dalsegno.ports.archive import Archive
from dalsegno.server.schemas.executions import EventInfo

if TYPE_CHECKING:
    from dalsegno.engine.tracing import RemoteRun

OPENING = b"retry: 1000\n\n"
"""Sent first, so that the client sees that the stream is open; sets its reconnection delay."""
HEARTBEAT = b": still here\n\n"


def event_frame(event: Event) -> bytes:
    """Return the frame of an event. JSON contains no line breaks outside of strings and escapes those inside."""
    fields = {name: value for name, value in EventInfo.of(event).__dict__.items() if value is not None}
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (event.seq, event.kind.encode(), msgspec.json.encode(fields))


def frame(kind: str, data: Any) -> bytes:
    """Return the frame of an event without a number: it does not change the position at which a stream resumes."""
    return frame_of(kind, msgspec.json.encode(data))


def frame_of(kind: str, text: bytes) -> bytes:
    """Return the same frame from encoded JSON."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), text)


logger = logging.getLogger("dalsegno.server")

RECENT = 256
"""Events that a reader caches."""
PAGE = 200
LOOK_EVERY = 1.5
"""Seconds between two queries for commits of other processes."""
GATHER_SECONDS = 0.03
"""Seconds from a notification of another process's commit, if the store sends them, to the query."""
LOOKED_AT = 1000
"""Executions per query."""

ENDINGS = frozenset(("ExecutionCompleted", "ExecutionFailed", "ExecutionCancelled"))


class Frame(Struct, frozen=True, gc=False):
    """An event as it is sent, encoded once for all watchers."""

    seq: int
    text: bytes


class Feed:
    """The shared reader of one execution. ``last`` is the newest event it has read."""

    def __init__(self, archive: Archive, view: ExecutionView) -> None:
        self.execution = view.id
        self.last = view.seq
        self.ending = view.ended_at is not None
        self.over = False
        """Whether all events have been read, or the execution was removed."""
        self.watchers = 0
        self.changed = asyncio.Event()
        self._archive = archive
        self._recent: deque[Frame] = deque(maxlen=RECENT)
        self._stale = False
        self._reading: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Wake the reader: there may be new events."""
        self._stale = True
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_all())

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    def announce(self) -> None:
        """Wake all watchers."""
        self.changed.set()
        self.changed = asyncio.Event()

    def end(self) -> None:
        self.over = True
        self.announce()

    def after(self, seen: int) -> Sequence[Frame] | None:
        """Return the events after that number; None if they are no longer cached."""
        if seen >= self.last:
            return ()
        if self._recent and self._recent[0].seq <= seen + 1:
            return [frame for frame in self._recent if frame.seq > seen]
        return None

    async def _read_all(self) -> None:
        try:
            while self._stale and not self.over:
                self._stale = False
                await self._read()
        except OperatorError as error:
            logger.warning("the events of %s cannot be read now (%s)", self.execution, error)
        finally:
            self._reading = None

    async def _read(self) -> None:
        """Read whether the execution has ended, and then the events: in this order no event can be missed."""
        is_complete = self.ending and await self._archive.is_told(self.execution)
        while page := await self._archive.events(self.execution, self.last, PAGE):
            self._keep(page)
            if len(page) < PAGE:
                break
        if is_complete:
            self.end()

    def _keep(self, page: Sequence[Event]) -> None:
        self._recent.extend(Frame(event.seq, event_frame(event)) for event in page)
        self.last = page[-1].seq
        if not self.ending and any(event.kind in ENDINGS for event in page):
            self.ending = self._stale = True
        self.announce()


class Broadcast:
    """All feeds of one server, as an observer of the engine: see `engine.tracing.Observer`."""

    def __init__(self, archive: Archive, closing: asyncio.Event) -> None:
        self.archive = archive
        self.open = 0
        """Number of open streams."""
        self.closing = closing
        self._feeds: dict[str, Feed] = {}
        self._looking: asyncio.Task[None] | None = None
        self._looking_soon: asyncio.Task[None] | None = None

    # -- watching ---------------------------------------------------------------------------------------------

    async def watch(
        self, view: ExecutionView, after: int, patience: float
    ) -> AsyncGenerator[Sequence[Frame]]:
        """Yield the events after that number, in order, until the last; an empty sequence after ``patience``
        seconds without an event. Ends early when the server stops."""
        with self._feed(view) as feed:
            seen = after
            while not self.closing.is_set():
                changed = feed.changed
                batch = feed.after(seen)
                if batch is None:
                    batch = await self._older(view.id, seen)
                if batch:
                    seen = batch[-1].seq
                    yield batch
                elif feed.over:
                    return
                elif not await is_set_within(changed, patience):
                    yield ()

    async def _older(self, execution: str, seen: int) -> Sequence[Frame]:
        events = await self.archive.events(execution, seen, PAGE)
        return [Frame(event.seq, event_frame(event)) for event in events]

    @contextlib.contextmanager
    def _feed(self, view: ExecutionView) -> Iterator[Feed]:
        feed = self._feeds.get(view.id)
        if feed is None:
            feed = self._feeds[view.id] = Feed(self.archive, view)
            feed.wake()
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_once())
        feed.watchers += 1
        try:
            yield feed
        finally:
            feed.watchers -= 1
            if feed.watchers == 0:
                feed.close()
                self._feeds.pop(view.id, None)

    # -- notifications ----------------------------------------------------------------------------------------

    def applied(self, transition: Transition, applied: Applied) -> None:
        del applied
        feed = self._feeds.get(transition.execution)
        if feed is not None:
            feed.wake()

    def began(self, lease: Lease) -> None:
        """Ignored: only commits matter."""

    def stepped(self, lease: Lease, seconds: float) -> None:
        """Ignored: only commits matter."""

    def committed(self, transitions: int, seconds: float) -> None:
        """Ignored: only commits matter."""

    def remote(self, held: RemoteRun, failure: Failure | None, now: float) -> None:
        """Ignored: only commits matter."""

    def poll_soon(self) -> None:
        """Query soon: another process has committed."""
        if self._feeds and self._looking_soon is None:
            self._looking_soon = asyncio.create_task(self._look_after_pause())

    async def _look_after_pause(self) -> None:
        await is_set_within(self.closing, GATHER_SECONDS)
        self._looking_soon = None
        await self._try_to_look()

    async def _look_once(self) -> None:
        """Query all watched executions at once, while there are watchers."""
        try:
            while self._feeds and not await is_set_within(self.closing, LOOK_EVERY):
                await self._try_to_look()
        finally:
            self._looking = None
            for feed in self._feeds.values():
                feed.announce()

    async def _try_to_look(self) -> None:
        try:
            await self._look()
        except OperatorError as error:
            logger.warning("cannot read new events (%s); trying again", error)

    async def _look(self) -> None:
        names = list(self._feeds)
        for start in range(0, len(names), LOOKED_AT):
            chunk = names[start : start + LOOKED_AT]
            newest = await self.archive.newest_events(chunk)
            for name in chunk:
                feed = self._feeds.get(name)
                if feed is None:
                    continue
                if name not in newest:
                    feed.end()
                elif newest[name] > feed.last or feed.ending:
                    feed.wake()


async def is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Return whether the event is set within that time."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
