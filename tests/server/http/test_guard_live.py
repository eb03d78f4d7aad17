"""Over a real socket: slow clients, silent connections, bodies without a length."""

from __future__ import annotations

import contextlib
import json
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

SETTINGS = ServerSettings(header_seconds=0.5, body_seconds=0.5, body_bytes=2000, idle_seconds=8)


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    made = LiveServer(App("memory:"), SETTINGS)
    config = made._server.config
    config.http = http_protocol(SETTINGS)
    config.timeout_keep_alive = 60  # uvicorn's own limit, which ours stands in for
    made._server = uvicorn.Server(config)
    with made:
        yield made


def connect(server: LiveServer) -> socket.socket:
    return socket.create_connection(server.socket.getsockname(), timeout=60)


def everything(connection: socket.socket) -> bytes:
    """Until the server closes the connection."""
    found = b""
    while chunk := connection.recv(65536):
        found += chunk
    return found


def answer(raw: bytes) -> tuple[int, dict[str, Any]]:
    head, _, body = raw.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def post(*more: str) -> bytes:
    lines = ("POST /v1/executions HTTP/1.1", "Host: localhost", "Content-Type: application/json", *more)
    return "\r\n".join((*lines, "", "")).encode()


def lives(server: LiveServer) -> bool:
    with connect(server) as connection:
        connection.sendall(b"GET /v1/executions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return everything(connection).startswith(b"HTTP/1.1 200")


def test_a_connection_that_sends_nothing_is_closed(server: LiveServer) -> None:
    began = time.monotonic()
    with connect(server) as connection:
        assert everything(connection) == b""
    assert 0.3 < time.monotonic() - began < 30
    assert lives(server)


def test_headers_that_are_too_large_are_refused_in_words(server: LiveServer) -> None:
    with connect(server) as connection:
        with contextlib.suppress(OSError):  # it may be closed before everything is sent
            connection.sendall(post(f"X-Much: {'x' * 70_000}").rstrip())
        status, told = answer(everything(connection))
    assert (status, told["status"], told["code"]) == (431, 431, "DS-190")
    assert told["detail"] == "the headers are larger than 65,536 bytes"
    assert lives(server)


def test_what_is_no_http_is_refused_in_words(server: LiveServer) -> None:
    with connect(server) as connection:
        connection.sendall(b"HELO mail.example.com\r\n\r\n")
        status, told = answer(everything(connection))
    assert (status, told["code"]) == (400, "DS-190")


def test_headers_byte_by_byte_do_not_hold_a_connection(server: LiveServer) -> None:
    began = time.monotonic()
    with connect(server) as connection, contextlib.suppress(OSError):
        while time.monotonic() - began < 30:
            connection.sendall(b"G")
            time.sleep(0.05)
    assert time.monotonic() - began < 30
    assert lives(server)


def test_an_idle_connection_is_closed_after_its_own_limit(server: LiveServer) -> None:
    with connect(server) as connection:
        connection.sendall(b"GET /v1/session HTTP/1.1\r\nHost: localhost\r\n\r\n")
        began = time.monotonic()
        assert everything(connection).startswith(b"HTTP/1.1 200")
    assert 7.9 < time.monotonic() - began < 60


def test_the_second_request_of_a_connection_has_its_time_too(server: LiveServer) -> None:
    with connect(server) as connection:
        for _ in range(2):
            connection.sendall(b"GET /v1/session HTTP/1.1\r\nHost: localhost\r\n\r\n")
            reply = connection.recv(65536)
            while not reply.endswith(b"}"):
                reply += connection.recv(65536)
            assert reply.startswith(b"HTTP/1.1 200")
            time.sleep(0.7)  # beyond the limit for headers: idle between requests is another matter
        connection.sendall(b"GET /v1/session HT")
        began = time.monotonic()
        assert everything(connection) == b""
    assert time.monotonic() - began < 7.5  # sooner than the limit between requests


def test_a_body_that_stalls_is_answered_and_closed(server: LiveServer) -> None:
    with connect(server) as connection:
        connection.sendall(post("Content-Length: 100") + b'{"workflow"')
        status, problem = answer(everything(connection))
    assert (status, problem["code"]) == (408, "DS-331")
    assert lives(server)


def test_a_body_that_is_too_large_is_refused_with_and_without_its_length(server: LiveServer) -> None:
    with connect(server) as connection:
        connection.sendall(post("Content-Length: 100000000"))
        assert answer(everything(connection))[0] == 413
    with connect(server) as connection:
        chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
        connection.sendall(post("Transfer-Encoding: chunked") + chunk * 3)
        status, problem = answer(everything(connection))
    assert (status, problem["code"]) == (413, "DS-191")
    assert lives(server)


def test_a_caller_that_hangs_up_in_the_middle_harms_nobody(server: LiveServer) -> None:
    for _ in range(20):
        with connect(server) as connection:
            connection.sendall(post("Content-Length: 100") + b"{")
    assert lives(server)


@pytest.mark.parametrize(
    "request_line",
    [b"GET /../../etc/passwd HTTP/1.1", b"GET /docs/../../../etc/passwd HTTP/1.1", b"GET /%ff%fe HTTP/1.1"],
)
def test_raw_paths_lead_to_no_file(server: LiveServer, request_line: bytes) -> None:
    with connect(server) as connection:
        connection.sendall(request_line + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        status, problem = answer(everything(connection))
    assert (status, problem["code"]) == (404, "DS-130")


def test_an_open_server_behind_a_proxy_is_not_open_to_those_behind_it(server: LiveServer) -> None:
    with connect(server) as connection:
        head = b"GET /v1/executions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        connection.sendall(head + b"X-Forwarded-For: 192.0.2.7\r\n\r\n")
        status, problem = answer(everything(connection))
    assert (status, problem["code"]) == (401, "DS-310")


def test_a_request_without_host_is_refused(server: LiveServer) -> None:
    with connect(server) as connection:
        connection.sendall(b"GET /v1/executions HTTP/1.0\r\n\r\n")
        status, problem = answer(everything(connection))
    assert (status, problem["code"]) == (403, "DS-321")
