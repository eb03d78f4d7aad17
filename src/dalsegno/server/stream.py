"""Streams of server-sent events: what is sent, and the response that ends when its reader has gone."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from dalsegno.engine.endings import EndingWatch
from dalsegno.errors import InvalidInput, NotFound, OperatorError, UsageError
from dalsegno.model.execution import ExecutionView
from dalsegno.server.access import Caller
from dalsegno.server.broadcast import Broadcast
from dalsegno.server.changes import Change, Changes, Listener
from dalsegno.server.frames import HEARTBEAT, OPENING, frame, frame_of
from dalsegno.server.office import Office
from dalsegno.server.problems import document_of
from dalsegno.server.replies import PIECE, encode
from dalsegno.server.schemas.executions import Execution

logger = logging.getLogger("dalsegno.server")

HEARTBEAT_EVERY = 15.0
READ_AT_ONCE = 16
"""Ended executions that are read from the store together: their outputs may be large."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""The second one keeps nginx and its kin from holding events back."""


class EventStream(StreamingResponse):
    """Ends as soon as the reader is gone, and tells when it has ended, however it did."""

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
            if isinstance(outcome, Exception) and not isinstance(outcome, OSError):  # the line broke
                raise outcome


def broadcast_of(office: Office) -> Broadcast:
    """Made when the first stream is opened: an engine that nobody watches is not observed."""
    if office.broadcast is None:
        archive = office.client.stack.archive
        office.broadcast = Broadcast(archive, office.closing)
        office.changes = Changes(archive, office.client.stack.clock, office.closing)
        office.engine.observe(office.broadcast)
        if office.client.stack.watch is not None:
            office.client.stack.watch.hear_commits(office.broadcast.look_soon)
        office.engine.observe(office.changes)
    return office.broadcast


def open_stream(office: Office, caller: Caller) -> Callable[[], None]:
    """Counts a stream of this caller; what is returned must be called when it is over. Refused beyond the key's quota,
    and beyond what the server allows."""
    broadcast = broadcast_of(office)
    freed = office.usage.open_stream(caller)
    broadcast.open += 1

    def over() -> None:
        broadcast.open -= 1
        freed()

    return over


def changes_of(office: Office) -> Changes:
    broadcast_of(office)
    if office.changes is None:
        raise RuntimeError("made together with the broadcast")
    return office.changes


def check_seen(view: ExecutionView, seen: int) -> None:
    """Whoever names an event that does not exist would wait for the ones before it in vain."""
    if seen > view.seq:
        raise InvalidInput(f"execution {view.id} has {view.seq} events so far; there is no event {seen}")


async def execution_stream(
    broadcast: Broadcast, view: ExecutionView, after: int, heartbeat: float = HEARTBEAT_EVERY
) -> AsyncGenerator[bytes]:
    """A store that is out of reach ends it early, like a server that stops: its reader comes back."""
    yield OPENING
    seen = after
    try:
        async with aclosing(broadcast.watch(view, after, heartbeat)) as batches:
            async for batch in batches:
                if batch:
                    seen = batch[-1].seq
                yield b"".join(each.text for each in batch) or HEARTBEAT
        if not broadcast.closing.is_set():
            ended = await broadcast.archive.outline(view.id)
            yield frame("end", {"state": ended.state if ended is not None else None, "last": seen})
    except OperatorError as error:
        logger.warning("the stream of %s is interrupted: %s", view.id, error)


async def endings_stream(
    office: Office, executions: Sequence[str], seconds: float, heartbeat: float = HEARTBEAT_EVERY
) -> AsyncGenerator[bytes]:
    """Executions as they end. It ends early like `execution_stream`, and then without its last frame."""
    yield OPENING
    unique, until = dict.fromkeys(executions), time.monotonic() + seconds
    try:
        async with office.client.endings.watch(unique) as watch:
            left, told = len(unique), await watch.next(0)
            is_first = True
            while True:
                async for part in _ended_frames(office, told):
                    yield part
                left -= len(told)
                if is_first:
                    yield frame("checked", {"open": left})
                    is_first = False
                remaining = until - time.monotonic()
                if not left or remaining <= 0:
                    break
                told = await _next_endings(office, watch, min(remaining, heartbeat))
                if office.closing.is_set():
                    return
                if not told:
                    yield HEARTBEAT
        yield frame("end", {"open": left})
    except (OperatorError, UsageError) as error:
        logger.warning("a stream of endings is interrupted: %s", error)


async def _next_endings(office: Office, watch: EndingWatch, seconds: float) -> dict[str, Exception | None]:
    """The next ones; none where the server stops or the time is over."""
    coming = asyncio.ensure_future(watch.next(seconds))
    closing = asyncio.ensure_future(office.closing.wait())
    try:
        await asyncio.wait((coming, closing), return_when="FIRST_COMPLETED")
        return coming.result() if coming.done() else {}
    finally:
        coming.cancel()
        closing.cancel()


async def _ended_frames(office: Office, told: Mapping[str, Exception | None]) -> AsyncGenerator[bytes]:
    """Small ones together, large ones in pieces: outputs may be large, and all others wait while one is packed."""
    waiting = bytearray()
    for chunk in _chunks(list(told.items())):
        for text in await asyncio.gather(*(_ended_frame(office, *each) for each in chunk)):
            waiting += text
            while len(waiting) >= PIECE:
                yield bytes(waiting[:PIECE])
                del waiting[:PIECE]
    if waiting:
        yield bytes(waiting)


def _chunks(told: Sequence[tuple[str, Exception | None]]) -> Iterator[Sequence[tuple[str, Exception | None]]]:
    for first in range(0, len(told), READ_AT_ONCE):
        yield told[first : first + READ_AT_ONCE]


async def _ended_frame(office: Office, execution: str, error: Exception | None) -> bytes:
    try:
        if error is not None:
            raise error
        return frame_of("ended", encode(Execution.of(await office.client.status(execution))))
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
