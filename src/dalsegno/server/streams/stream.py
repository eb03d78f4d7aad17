"""Streams of server-sent events: their content, and a response that ends when its reader disconnects."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from dalsegno.engine.operations.endings import EndingWatch
from dalsegno.engine.operations.published import Followers, News
from dalsegno.errors import InvalidInput, NotFound, OperatorError, UsageError
from dalsegno.model.execution import ExecutionView
from dalsegno.server.auth.authentication import Caller
from dalsegno.server.http.problems import document_of
from dalsegno.server.http.responses import PIECE, encode
from dalsegno.server.schemas.executions import Execution
from dalsegno.server.services import ServerServices
from dalsegno.server.streams.execution_feed import HEARTBEAT, OPENING, Broadcast, frame, frame_of
from dalsegno.server.streams.published import beside, value_frames
from dalsegno.server.streams.state_changes import Change, Changes, Listener

logger = logging.getLogger("dalsegno.server")

HEARTBEAT_EVERY = 15.0
READ_AT_ONCE = 16
"""Ended executions that are read from the store together: their outputs may be large."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""The second one keeps nginx and compatible proxies from buffering events."""


class EventStream(StreamingResponse):
    """A response that ends as soon as the reader disconnects, and runs a callback at its end in any case."""

    media_type = "text/event-stream"

    def __init__(self, content: AsyncGenerator[bytes], over: Callable[[], None]) -> None:
        super().__init__(content, headers=HEADERS)
        self.content = content
        self.over = over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        parts = [
            asyncio.ensure_future(self.stream_response(send)),
            asyncio.ensure_future(self.listen_for_disconnect(receive)),
        ]
        try:
            await asyncio.wait(parts, return_when="FIRST_COMPLETED")
        finally:
            for part in parts:
                part.cancel()
            outcomes = await asyncio.gather(*parts, return_exceptions=True)
            await self.content.aclose()
            self.over()
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, OSError):  # the connection broke
                raise outcome


def broadcast_of(services: ServerServices) -> Broadcast:
    """Return the feeds; they are created when the first stream is opened, so that an engine without watchers is not
    observed."""
    if services.broadcast is None:
        archive = services.client.stack.archive
        services.broadcast = Broadcast(archive, services.closing)
        services.changes = Changes(archive, services.client.stack.clock, services.closing)
        services.engine.observe(services.broadcast)
        if services.client.stack.watch is not None:
            services.client.stack.watch.on_commit(services.broadcast.poll_soon)
        services.engine.observe(services.changes)
    return services.broadcast


def open_stream(services: ServerServices, caller: Caller) -> Callable[[], None]:
    """Count a stream of this caller. The returned function must be called when the stream ends. Refused beyond the
    key's quota and beyond the server's limit."""
    broadcast = broadcast_of(services)
    freed = services.usage.open_stream(caller)
    broadcast.open += 1

    def over() -> None:
        broadcast.open -= 1
        freed()

    return over


def changes_of(services: ServerServices) -> Changes:
    broadcast_of(services)
    if services.changes is None:
        raise RuntimeError("made together with the broadcast")
    return services.changes


def check_seen(view: ExecutionView, seen: int) -> None:
    """Refuse an event number that does not exist: its caller would not receive the events before it."""
    if seen > view.seq:
        raise InvalidInput(f"execution {view.id} has {view.seq} events so far; there is no event {seen}")


async def execution_stream(
    broadcast: Broadcast,
    view: ExecutionView,
    after: int,
    heartbeat: float = HEARTBEAT_EVERY,
    followers: Followers | None = None,
) -> AsyncGenerator[bytes]:
    """Stream the events of an execution and, with ``followers``, what it publishes. Ends early if the store is
    unreachable or the server stops; the reader reconnects."""
    yield OPENING
    seen, news = after, News()
    events = broadcast.watch(view, after, heartbeat)
    changes = followers.changes(view.id) if followers is not None else None
    try:
        async with aclosing(beside(events, changes)) as batches:
            async for batch, rows in batches:
                if batch:
                    seen = batch[-1].seq
                frames = b"".join(each.text for each in batch or ()) + value_frames(news.take(rows or ()))
                yield frames or HEARTBEAT
        if not broadcast.closing.is_set():
            if followers is not None and (last := news.take(await followers.newest(view.id))):
                yield value_frames(last)
            ended = await broadcast.archive.outline(view.id)
            yield frame("end", {"state": ended.state if ended is not None else None, "last": seen})
    except OperatorError as error:
        logger.warning("the stream of %s is interrupted: %s", view.id, error)


async def endings_stream(
    services: ServerServices, executions: Sequence[str], seconds: float, heartbeat: float = HEARTBEAT_EVERY
) -> AsyncGenerator[bytes]:
    """Stream executions as they end. Ends early like `execution_stream`, and then without its last frame."""
    yield OPENING
    unique, until = dict.fromkeys(executions), time.monotonic() + seconds
    try:
        async with services.client.endings.watch(unique) as watch:
            left, ended = len(unique), await watch.next(0)
            is_first = True
            while True:
                async for part in _ended_frames(services, ended):
                    yield part
                left -= len(ended)
                if is_first:
                    yield frame("checked", {"open": left})
                    is_first = False
                remaining = until - time.monotonic()
                if not left or remaining <= 0:
                    break
                ended = await _next_endings(services, watch, min(remaining, heartbeat))
                if services.closing.is_set():
                    return
                if not ended:
                    yield HEARTBEAT
        yield frame("end", {"open": left})
    except (OperatorError, UsageError) as error:
        logger.warning("a stream of endings is interrupted: %s", error)


async def _next_endings(
    services: ServerServices, watch: EndingWatch, seconds: float
) -> dict[str, Exception | None]:
    """Return the next executions that end; none if the server stops or the time is over."""
    coming = asyncio.ensure_future(watch.next(seconds))
    closing = asyncio.ensure_future(services.closing.wait())
    try:
        await asyncio.wait((coming, closing), return_when="FIRST_COMPLETED")
        return coming.result() if coming.done() else {}
    finally:
        coming.cancel()
        closing.cancel()


async def _ended_frames(
    services: ServerServices, ended: Mapping[str, Exception | None]
) -> AsyncGenerator[bytes]:
    """Yield small executions together and large ones in pieces: outputs may be large, and encoding one blocks the
    event loop."""
    waiting = bytearray()
    for chunk in _chunks(list(ended.items())):
        for text in await asyncio.gather(*(_ended_frame(services, *each) for each in chunk)):
            waiting += text
            while len(waiting) >= PIECE:
                yield bytes(waiting[:PIECE])
                del waiting[:PIECE]
    if waiting:
        yield bytes(waiting)


def _chunks(
    ended: Sequence[tuple[str, Exception | None]],
) -> Iterator[Sequence[tuple[str, Exception | None]]]:
    for first in range(0, len(ended), READ_AT_ONCE):
        yield ended[first : first + READ_AT_ONCE]


async def _ended_frame(services: ServerServices, execution: str, error: Exception | None) -> bytes:
    try:
        if error is not None:
            raise error
        return frame_of("ended", encode(Execution.of(await services.client.status(execution))))
    except NotFound as gone:
        return frame_of("refused", encode({"id": execution, "problem": document_of(gone)}))


async def change_stream(
    changes: Changes, listener: Listener, heartbeat: float = HEARTBEAT_EVERY
) -> AsyncGenerator[bytes]:
    yield OPENING
    async with aclosing(changes.listen(listener, heartbeat)) as batches:
        async for batch, lost in batches:
            texts = [frame("lost", {"count": lost})] if lost else []
            texts += [_change_frame(change) for change in batch]
            yield b"".join(texts) or HEARTBEAT


def _change_frame(change: Change) -> bytes:
    return frame(change.kind, change)
