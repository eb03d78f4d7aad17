"""Streams of server-sent events: what is sent, and the response that ends when its reader has gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from dalsegno.errors import InvalidInput, OperatorError
from dalsegno.model.execution import ExecutionView
from dalsegno.server.access import Caller
from dalsegno.server.broadcast import Broadcast
from dalsegno.server.changes import Change, Changes, Listener
from dalsegno.server.frames import HEARTBEAT, OPENING, frame
from dalsegno.server.office import Office

logger = logging.getLogger("dalsegno.server")

HEARTBEAT_EVERY = 15.0
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
