"""One reader per watched execution, shared by all who watch it.

A commit of this process wakes the readers it concerns; a slow look at all of them at once finds what other processes
commit. A reader keeps the newest events ready; whoever is further behind reads the archive for itself, so that a slow
watcher neither holds up the others nor loses anything. Positions are event numbers, which the store gives without gaps:
nothing is told twice or passed over, whichever of the two ways it comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from dalsegno.errors import OperatorError
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionView
from dalsegno.model.failure import Failure
from dalsegno.model.token import Lease
from dalsegno.model.transition import Applied, Transition
from dalsegno.ports.archive import Archive
from dalsegno.server.frames import event_frame

if TYPE_CHECKING:
    from dalsegno.engine.remote_sessions import Held

logger = logging.getLogger("dalsegno.server")

RECENT = 256
"""Events that a reader keeps ready."""
PAGE = 200
LOOK_EVERY = 1.5
"""Seconds between two looks at what other processes may have done."""
BREATH = 0.03
"""Seconds from a commit of another process, where the store tells of it, to a look."""
LOOKED_AT = 1000
"""Executions per query of such a look."""

ENDINGS = frozenset(("ExecutionCompleted", "ExecutionFailed", "ExecutionCancelled"))


class Frame(Struct, frozen=True, gc=False):
    """An event as it is sent, made once for all watchers."""

    seq: int
    text: bytes


class Feed:
    """The shared reader of one execution. ``last`` is the newest event it has read."""

    def __init__(self, archive: Archive, view: ExecutionView) -> None:
        self.execution = view.id
        self.last = view.seq
        self.ending = view.ended_at is not None
        self.over = False
        """Everything that there will ever be is read, or the execution is gone."""
        self.watchers = 0
        self.changed = asyncio.Event()
        self._archive = archive
        self._recent: deque[Frame] = deque(maxlen=RECENT)
        self._stale = False
        self._reading: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """There may be more to read."""
        self._stale = True
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_all())

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    def announce(self) -> None:
        """Whoever waits looks again."""
        self.changed.set()
        self.changed = asyncio.Event()

    def end(self) -> None:
        self.over = True
        self.announce()

    def after(self, seen: int) -> Sequence[Frame] | None:
        """What comes after that number; None where it is not at hand any more."""
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
        """First whether it is all told, then the rest: nothing can come in between."""
        told = self.ending and await self._archive.is_told(self.execution)
        while page := await self._archive.events(self.execution, self.last, PAGE):
            self._keep(page)
            if len(page) < PAGE:
                break
        if told:
            self.end()

    def _keep(self, page: Sequence[Event]) -> None:
        self._recent.extend(Frame(event.seq, event_frame(event)) for event in page)
        self.last = page[-1].seq
        if not self.ending and any(event.kind in ENDINGS for event in page):
            self.ending = self._stale = True
        self.announce()


class Broadcast:
    """All feeds of one server. An observer of the engine: see `engine.observing`."""

    def __init__(self, archive: Archive, closing: asyncio.Event) -> None:
        self.archive = archive
        self.open = 0
        """Streams that are open."""
        self.closing = closing
        self._feeds: dict[str, Feed] = {}
        self._looking: asyncio.Task[None] | None = None
        self._looking_soon: asyncio.Task[None] | None = None

    # -- watching ---------------------------------------------------------------------------------------------

    async def watch(
        self, view: ExecutionView, after: int, patience: float
    ) -> AsyncGenerator[Sequence[Frame]]:
        """Events after that number, in order, until the last; nothing where nothing happened for so many seconds. Ends
        early when the server stops."""
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
                elif not await happens(changed, patience):
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
            self._looking = asyncio.create_task(self._look_around())
        feed.watchers += 1
        try:
            yield feed
        finally:
            feed.watchers -= 1
            if feed.watchers == 0:
                feed.close()
                self._feeds.pop(view.id, None)

    # -- what happens -----------------------------------------------------------------------------------------

    def applied(self, transition: Transition, applied: Applied) -> None:
        del applied
        feed = self._feeds.get(transition.execution)
        if feed is not None:
            feed.wake()

    def began(self, lease: Lease) -> None:
        """What counts is what was committed."""

    def stepped(self, lease: Lease, seconds: float) -> None:
        """The same."""

    def committed(self, transitions: int, seconds: float) -> None:
        """The same."""

    def remote(self, held: Held, failure: Failure | None, now: float) -> None:
        """The same."""

    def look_soon(self) -> None:
        """Another process has committed something."""
        if self._feeds and self._looking_soon is None:
            self._looking_soon = asyncio.create_task(self._look_after_breath())

    async def _look_after_breath(self) -> None:
        await happens(self.closing, BREATH)
        self._looking_soon = None
        await self._try_to_look()

    async def _look_around(self) -> None:
        """While anybody watches: one query asks about all executions that are watched."""
        try:
            while self._feeds and not await happens(self.closing, LOOK_EVERY):
                await self._try_to_look()
        finally:
            self._looking = None
            for feed in self._feeds.values():
                feed.announce()

    async def _try_to_look(self) -> None:
        try:
            await self._look()
        except OperatorError as error:
            logger.warning("cannot look for new events (%s); trying again", error)

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


async def happens(event: asyncio.Event, seconds: float) -> bool:
    """Whether it happened within that time."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
