"""Over a real socket: clients that do not read their replies hold neither their handler nor their connection."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from dalsegno.app import App
from dalsegno.server import ServerSettings
from dalsegno.server.http.connections import http_protocol
from tests.server.conftest import LiveServer
from tests.server.http.test_guard_live import everything, lives
from tests.waiting import until

SETTINGS = ServerSettings(reply_seconds=0.5)
PATIENCE = 15.0
LARGE = 32 * 1024 * 1024


class Sender:
    """Replies of a given size, and how many handlers are at it."""

    def __init__(self) -> None:
        self.busy = 0

    async def send(self, size: int, scope, receive, send) -> None:  # type: ignore[no-untyped-def]  # ASGI
        self.busy += 1
        try:
            length = str(size).encode()
            start = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]}
            await send(start)
            chunk = b"x" * 65536
            for left in range(size, 0, -len(chunk)):
                more = left > len(chunk)
                await send({"type": "http.response.body", "body": chunk[:left], "more_body": more})
        finally:
            self.busy -= 1


@pytest.fixture(scope="module")
def sender() -> Sender:
    return Sender()


@pytest.fixture(scope="module")
def server(sender: Sender) -> Iterator[LiveServer]:
    """The real application; below ``/sized/<bytes>`` replies as large as one likes."""
    made = LiveServer(App("memory:"), SETTINGS)
    application: Any = made._server.config.app

    async def sized(scope, receive, send) -> None:  # type: ignore[no-untyped-def]  # ASGI
        if scope["type"] == "http" and scope["path"].startswith("/sized/"):
            await sender.send(int(scope["path"].removeprefix("/sized/")), scope, receive, send)
        else:
            await application(scope, receive, send)

    made._server = uvicorn.Server(
        uvicorn.Config(sized, log_level="warning", http=http_protocol(SETTINGS), timeout_keep_alive=3600)
    )
    with made:
        yield made


def asking(server: LiveServer, size: int) -> socket.socket:
    """Takes in as little as a socket can."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(PATIENCE)
    made.connect(server.socket.getsockname())
    made.sendall(f"GET /sized/{size} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return made


def connections(server: LiveServer) -> int:
    return len(server._server.server_state.connections)


def test_a_client_that_reads_nothing_is_disconnected(server: LiveServer, sender: Sender) -> None:
    with asking(server, LARGE) as silent:
        until(lambda: sender.busy == 1, "the reply is on its way")
        until(lambda: sender.busy == 0, "its handler is free")
        assert len(everything(silent)) < LARGE
    assert lives(server)


def test_the_end_of_a_reply_is_not_kept_for_ever_either(server: LiveServer, sender: Sender) -> None:
    """Nothing more is to be sent, and less waits than stops a handler: only the connection is held."""
    fits = _what_fits_on_the_way(server)
    with asking(server, fits + 30_000):
        until(lambda: connections(server) == 1, "the connection is there")
        until(lambda: connections(server) == 0, "the connection is gone")
    assert sender.busy == 0
    assert lives(server)


def _what_fits_on_the_way(server: LiveServer) -> int:
    """Bytes that the two kernels hold between a writer and a reader that reads nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect(listener.getsockname())
        writer, _ = listener.accept()
        with writer:
            writer.setblocking(False)
            held = 0
            while True:
                try:
                    held += writer.send(b"x" * 4096)
                except BlockingIOError:
                    return held


def test_a_client_that_is_slow_but_reads_gets_everything(server: LiveServer) -> None:
    size = 1_500_000
    with asking(server, size) as slow:
        got = len(slow.recv(1024))
        began = time.monotonic()
        while got < size:
            got += len(slow.recv(65536))
            time.sleep(0.05)
        assert time.monotonic() - began > 2 * SETTINGS.reply_seconds
    assert lives(server)
