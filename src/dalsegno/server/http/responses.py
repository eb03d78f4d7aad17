"""Responses: HEAD for every GET, security headers, and replies written in one piece.

- HEAD returns the status and headers of GET, without the body.
- Every reply carries headers that restrict what browsers may do with it.
- The head of a reply is sent together with the first part of its body if that follows at once. uvicorn would write
  them separately: two system calls, two packets, and a client that is woken twice.
- Stored JSON is sent unchanged, and large replies are sent in pieces. The framework would validate every reply and
  serialize it a second time; here a reply is encoded once. A `msgspec.Raw` in a model is copied, unless it is large:
  then it is sent from its own buffer.
- A process holds only a limited number of bytes of large values at a time. An input may have 16 MiB and an output 64
  MiB, and a slow reader keeps them in memory for as long as it reads. Calls that read large values queue, fairly by
  key (`ServerServices.large_values`). A call that waits too long is answered with 503, to be retried; a client that
  reads its reply very slowly is disconnected while others wait.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import Any, Final, TypeAlias

import msgspec
from fastapi import Response
from fastapi.responses import StreamingResponse
from msgspec.structs import replace
from pydantic import BaseModel
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dalsegno.engine.subprocesses.job_pool import Lane, requester
from dalsegno.errors import DalSegnoError
from dalsegno.model.execution import ExecutionView
from dalsegno.server.http import deadlines
from dalsegno.server.http.request import GuardedRequest
from dalsegno.server.services import ServerServices


class _Enough(Exception):
    """The headers have been sent: the rest of the route's reply, possibly a stream of hours, is not needed."""


class HeadAsGet:
    """Middleware that turns HEAD into GET for the routes. The audit, the guard and the log run before it and see
    HEAD."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            elif message.get("more_body", False):
                raise _Enough

        try:
            await self.app({**scope, "method": "GET"}, receive, without_body)
        except* _Enough:
            pass


API_POLICY = b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
PAGE_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing is loaded from other hosts, and only files of this server are executed in a page."""

ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not `no-referrer`: with it, browsers send `Origin: null` with the forms of the server's own pages.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
HTTPS_ONLY = (b"strict-transport-security", b"max-age=31536000")


def with_default_headers(
    send: Send, visit: GuardedRequest, more: tuple[tuple[bytes, bytes], ...] = ()
) -> Send:
    """Wrap ``send`` to add the headers; headers that a route has set itself are kept."""

    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = _completed(list(message.get("headers", ())), visit, more)
        await send(message)

    return with_headers


def _completed(
    headers: list[tuple[bytes, bytes]], visit: GuardedRequest, more: tuple[tuple[bytes, bytes], ...]
) -> list[tuple[bytes, bytes]]:
    named = {name.lower(): value for name, value in headers}
    is_page = named.get(b"content-type", b"").startswith(b"text/html")
    wanted = [*ALWAYS, (b"content-security-policy", PAGE_POLICY if is_page else API_POLICY)]
    if visit.is_https:
        wanted.append(HTTPS_ONLY)
    headers += [pair for pair in wanted if pair[0] not in named]
    return [*headers, *more]


HEAD = b"HTTP/1.1 "


class CoalescingTransport:
    """A transport that delegates all methods except `write`."""

    __slots__ = ("_head", "_loop", "_soon", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._head = b""
        self._soon: asyncio.Handle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._head:
            self._transport.writelines((self._taken(), data))
        elif data.startswith(HEAD):
            self._head = data
            # A stream may send nothing for hours after its head.
            self._soon = self._loop.call_soon(self._write_head)
        elif data:
            self._transport.write(data)

    def close(self) -> None:
        self._write_head()
        self._transport.close()

    def _write_head(self) -> None:
        if self._head:
            self._transport.write(self._taken())

    def _taken(self) -> bytes:
        head, self._head = self._head, b""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        return head


# -- JSON ----------------------------------------------------------------------------------------------------


logger = logging.getLogger("dalsegno.server")

Stored: TypeAlias = bytes | msgspec.Raw
PIECE: Final = 32_768
"""Bytes of a large reply that are compressed and sent at a time."""
MEDIA_TYPE: Final = "application/json"
_MARK: Final = msgspec.Raw(json.dumps(secrets.token_hex(16)).encode())
"""Placeholder of a large value while the rest is encoded. It is random, so that no other value equals it."""


def _fields(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.__dict__
    raise TypeError(type(value).__name__)


encode = msgspec.json.Encoder(enc_hook=_fields).encode


def json_reply(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response. ``content``: plain values and models, which may contain `msgspec.Raw`."""
    large: list[msgspec.Raw] = []
    raw = encode(_without_large(content, large))
    if large:
        return streamed(_with_large(raw, large), status, headers)
    if len(raw) <= PIECE:
        return Response(raw, status, headers, MEDIA_TYPE)
    return streamed((raw,), status, headers)


def _without_large(content: Any, large: list[msgspec.Raw]) -> Any:
    """Replace each large value by a placeholder, except in lists: encoding the values would copy them."""
    if isinstance(content, msgspec.Raw):
        if memoryview(content).nbytes <= PIECE:
            return content
        large.append(content)
        return _MARK
    fields = content.__dict__ if isinstance(content, BaseModel) else content
    if isinstance(fields, dict) and any(map(_may_hold_large, fields.values())):
        return {name: _without_large(value, large) for name, value in fields.items()}
    return content


def _may_hold_large(value: Any) -> bool:
    return isinstance(value, msgspec.Raw | BaseModel | dict)


def _with_large(raw: bytes, large: Sequence[msgspec.Raw]) -> list[Stored]:
    first, *others = raw.split(bytes(_MARK))
    parts: list[Stored] = [first]
    for value, after in zip(large, others, strict=True):
        parts += (value, after)
    return parts


def streamed(
    parts: Sequence[Stored], status: int = 200, headers: Mapping[str, str] | None = None
) -> StreamingResponse:
    """Stream one JSON text in pieces: compressing and sending all of it at once would block the event loop."""

    left = _Left(parts)

    async def pieces() -> AsyncIterator[bytes]:
        while piece := left.take():
            yield piece
            await asyncio.sleep(0)

    length = str(sum(memoryview(part).nbytes for part in parts))
    return StreamingResponse(pieces(), status, {**(headers or {}), "Content-Length": length}, MEDIA_TYPE)


class _Left:
    """The unsent rest of a reply, until the call ends. The frames of an interrupted reply stay until the garbage
    collector runs, which may be late: they refer to this object, and not to the values."""

    def __init__(self, parts: Sequence[Stored]) -> None:
        self._parts = deque(parts)
        self._start = 0
        deadlines.at_end(self._parts.clear)

    def add(self, part: Stored) -> None:
        self._parts.append(part)

    def take(self) -> bytes:
        """Return the next piece; empty at the end."""
        while self._parts:
            start, self._start = self._start, self._start + PIECE
            if piece := bytes(memoryview(self._parts[0])[start : self._start]):
                return piece
            self._parts.popleft()
            self._start = 0
        return b""


def streamed_object(
    members: Mapping[str, Callable[[], Awaitable[Stored]]], close_connection: Callable[[], None]
) -> StreamingResponse:
    """Stream an object whose members are read one after the other while it is sent. If a member no longer exists,
    the connection is closed before the reply is complete."""

    left = _Left(())

    async def pieces() -> AsyncIterator[bytes]:
        before = b"{"
        try:
            for name, read in members.items():
                yield before + encode(name) + b":"
                left.add(await read())
                while piece := left.take():
                    yield piece
                    await asyncio.sleep(0)
                before = b","
        except DalSegnoError as error:
            logger.warning("a reply with large values was aborted: %s", error)
            close_connection()
            await asyncio.sleep(0)
        yield b"}" if members else b"{}"

    return StreamingResponse(pieces(), media_type=MEDIA_TYPE)


def replying(endpoint: Callable[..., Awaitable[Any]], status: int) -> Callable[..., Awaitable[Any]]:
    """Wrap an endpoint: its result becomes a reply with the given status and the headers that the endpoint sets."""
    parameters = signature(endpoint).parameters.values()
    response = next((each.name for each in parameters if each.annotation in ("Response", Response)), None)

    @wraps(endpoint)
    async def reply(**values: Any) -> Any:
        found = await endpoint(**values)
        if found is None or isinstance(found, Response):
            return found
        given: Response | None = values.get(response) if response is not None else None
        if given is None:
            return json_reply(found, status)
        return json_reply(found, given.status_code or status, given.headers)

    return reply


SMALL = 1024 * 1024
"""Bytes of a value that is not counted."""
LEAST_RATE = 1024 * 1024
"""Bytes per second that a client must read of a large reply after its first ``reply_seconds``, while other calls
wait."""
LATE_EVERY = 1.0
"""Seconds between two checks whether a call waits because of a slow client."""


async def outline(services: ServerServices, execution: str) -> ExecutionView:
    """Return an execution whose values the call is about to read; their bytes are reserved until the call ends.
    Raises Overloaded if they do not become free in time."""
    view = await _sized(services, execution)
    await _hold(services, view.value_bytes)
    return view


async def _sized(services: ServerServices, execution: str) -> ExecutionView:
    """Return the outline of an execution. The input of a task that was handed over may be a blob: its own once it has
    ended, else its script's.
    """
    view = await services.client.outline(execution)
    if view.relation != "task" or view.parent is None:
        return view
    blobs = services.client.stack.blobs
    size = await blobs.stored(execution) or await blobs.stored(view.parent)
    return replace(view, value_bytes=view.value_bytes + size)


async def whole(services: ServerServices, execution: str) -> ExecutionView:
    """Return an execution with its values, which are reserved until the call ends."""
    await outline(services, execution)
    return await services.client.status(execution)


async def with_results(services: ServerServices, execution: str) -> ExecutionView:
    """Return an execution as ``outline`` does, for a call that reads the outputs of all nodes."""
    view = await _sized(services, execution)
    size = view.value_bytes + await services.client.stack.blobs.stored(execution)
    await _hold(services, size)
    return replace(view, value_bytes=size)


def is_large(view: ExecutionView) -> bool:
    return view.value_bytes > SMALL


async def _hold(services: ServerServices, size: int) -> None:
    if size <= SMALL:
        return
    key, weight, lane = requester.get().key, min(size, services.settings.large_bytes), services.large_values
    await lane.enter(key, weight)
    watch = _Watch(lane, services.settings.reply_seconds + size / LEAST_RATE, deadlines.closing_connection())

    def over() -> None:
        watch.stop()
        lane.leave(key, weight)

    deadlines.at_end(over)


class _Watch:
    """A timer that disconnects a slow client while other calls wait."""

    def __init__(self, lane: Lane, seconds: float, close_connection: Callable[[], None]) -> None:
        self._lane = lane
        self._close_connection = close_connection
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        if self._lane.waiting:
            self._close_connection()
        self._timer = asyncio.get_running_loop().call_later(LATE_EVERY, self._look)
