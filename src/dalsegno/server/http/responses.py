"""Responses: HEAD for every GET, security headers, and replies written in one piece.

- HEAD returns the status and headers of GET, without the body.
- Every reply carries headers that restrict what browsers may do with it.
- The head of a reply is sent together with the first part of its body if that follows at once. uvicorn would write
  them separately: two system calls, two packets, and a client that is woken twice.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dalsegno.server.http.request import GuardedRequest


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
