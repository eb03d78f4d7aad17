"""Streams end with the key that opened them; nothing comes in by a socket of another kind."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send

from dalsegno.app import App
from dalsegno.server import ServerSettings
from dalsegno.server.application import create_application
from dalsegno.server.http.guard import Guard
from dalsegno.server.http.routing import Table
from tests.server.auth.test_keys import bearer, book_of, make_key


@pytest.fixture
def app() -> App:
    return App("memory:")


@pytest.fixture
def application(app: App) -> FastAPI:
    return create_application(app, ServerSettings(keys_seconds=0.0))


def visit(headers: dict[str, str]) -> dict[str, Any]:
    named = {"host": "localhost", **{name.lower(): value for name, value in headers.items()}}
    raw = [(name.encode(), value.encode()) for name, value in named.items()]
    return {"type": "http", "method": "GET", "path": "/v1/stream", "headers": raw, "client": ("127.0.0.1", 1)}


async def nothing() -> Message:
    raise AssertionError("nobody reads the body of a GET")


class Stream:
    """An application that sends piece after piece, and what a watcher saw of it."""

    def __init__(self, application: FastAPI) -> None:
        self.guard = Guard(self.send_pieces, application.state.services, Table((), "/v1"))
        self.seen: list[Message] = []
        self.before: dict[int, Any] = {}

    async def send_pieces(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(5):
            if number in self.before:
                await self.before[number]()
            await send({"type": "http.response.body", "body": str(number).encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"end"})

    async def watch(self, headers: dict[str, str]) -> bytes:
        async def see(message: Message) -> None:
            self.seen.append(message)

        await self.guard(visit(headers), nothing, see)
        return self.text

    @property
    def text(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.seen)


async def test_a_stream_ends_with_its_key(app: App, application: FastAPI) -> None:
    async with application.router.lifespan_context(application):
        headers = bearer(await make_key(app, "read"))
        assert await Stream(application).watch(headers) == b"01234end"
        stream = Stream(application)

        async def revoke() -> None:
            await book_of(app).revoke((await book_of(app).find("somebody")).id)

        stream.before = {3: revoke}
        with pytest.raises(OSError, match="no longer valid"):
            await stream.watch(headers)
        assert stream.text == b"012"
        assert stream.seen[-1]["more_body"] is False


async def test_a_stream_of_an_open_server_ends_when_the_door_closes(app: App, application: FastAPI) -> None:
    async with application.router.lifespan_context(application):
        stream = Stream(application)

        async def close_the_door() -> None:
            await make_key(app, "admin")

        stream.before = {1: close_the_door}
        with pytest.raises(OSError, match="no longer valid"):
            await stream.watch({})
        assert stream.text == b"0"


async def test_a_websocket_is_closed_before_it_opens(application: FastAPI) -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async with application.router.lifespan_context(application):
        scope = {"type": "websocket", "path": "/v1/stream", "headers": [(b"host", b"localhost")]}
        await application(scope, nothing, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]
