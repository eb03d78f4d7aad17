"""Roles that wait for their store answer whoever asks meanwhile: they are alive, and not ready."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from dalsegno.version import __version__
from tests.cli.programs import Programs
from tests.cli.roles import NOBODY, ROLES, line_with, stop
from tests.servers.postgres import PostgresServer
from tests.servers.process import free_port
from tests.waiting import until


def is_listening(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def connections_of(http: httpx.Client) -> list[str]:
    """By the ports from which they were made."""
    transport: Any = http._transport
    return [
        str(each._connection._network_stream.get_extra_info("client_addr"))
        for each in transport._pool.connections
    ]


@pytest.mark.parametrize("role", ["worker", "scheduler"])
def test_role_that_waits_is_alive_and_not_ready(
    programs: Programs, postgres_factory: Callable[..., PostgresServer], role: str
) -> None:
    server = postgres_factory()
    server.stop()
    url = f"http://127.0.0.1:{(port := free_port())}"
    program = programs.begin(role, "--store", server.url, "--health-port", str(port))
    line_with(program, "cannot be reached")

    assert httpx.get(f"{url}/live").json() == {"status": "ok"}
    ready = httpx.get(f"{url}/ready")
    assert ready.status_code == 503
    assert ready.json()["status"] == "down"
    assert "waits for its store: PostgreSQL at 127.0.0.1" in ready.json()["detail"]
    metrics = httpx.get(f"{url}/metrics").text
    assert "dalsegno_store_up 0.0" in metrics
    assert f'dalsegno_info{{version="{__version__}"}}' in metrics

    server.start()
    until(lambda: httpx.get(f"{url}/ready").status_code == 200, "readiness")
    assert "dalsegno_store_up 1.0" in httpx.get(f"{url}/metrics").text
    stop(program)


def test_server_that_waits_answers_and_hands_its_socket_over(
    programs: Programs, postgres_factory: Callable[..., PostgresServer]
) -> None:
    server = postgres_factory()
    server.stop()
    port = free_port()
    program = programs.begin("server", "--port", str(port), "--store", server.url)
    line_with(program, "cannot be reached")
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as http:
        assert http.get("/v1/health/live").json() == {"status": "ok"}
        assert http.head("/v1/health/live").status_code == 200
        for method, path in (
            ("GET", "/v1/health/ready"),
            ("GET", "/v1/executions"),
            ("GET", "/nothing"),
            ("HEAD", "/docs"),
        ):
            refused = http.request(method, path)
            assert refused.status_code == 503, path
            assert refused.headers["Retry-After"] == "1"
            assert refused.headers["Content-Type"] == "application/problem+json"
            assert refused.headers["X-Content-Type-Options"] == "nosniff"
        told = http.get("/v1/health/ready").json()
        assert told["code"] == "DS-210"
        assert told["type"] == "/v1/errors/DS-210"
        assert "waits for its store: PostgreSQL at 127.0.0.1" in told["detail"]
        assert http.post("/v1/executions", json={"workflow": "x"}).status_code == 503
        http.get("/v1/health/live")
        [connection] = connections_of(http)

        server.start()

        until(lambda: http.get("/v1/health/ready").status_code == 200, "readiness")
        assert http.get("/v1/executions").status_code == 200
        assert connections_of(http) == [connection], "the connection outlives the change"
    line_with(program, ROLES["server"])
    stop(program)


def test_server_that_waits_can_be_stopped_while_it_is_asked(programs: Programs) -> None:
    port = free_port()
    program = programs.begin("server", "--port", str(port), "--grace", "20", "--store", NOBODY)
    line_with(program, "cannot be reached")
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as http:
        assert http.get("/v1/health/ready").status_code == 503
        program.send(signal.SIGTERM)
        code, _, err = program.finish(patience=10)
    assert code == 0
    assert "stopped before the store could be opened" in err


def test_who_comes_before_a_server_is_up_is_kept_waiting_and_served(
    programs: Programs, postgres_url: str
) -> None:
    """Whoever starts a server and calls it at once gets an answer, and no refusal."""
    port = free_port()
    program = programs.begin("server", "--port", str(port), "--store", postgres_url)
    until(lambda: is_listening(port), "the socket")
    assert httpx.get(f"http://127.0.0.1:{port}/v1/executions", timeout=20).status_code == 200
    stop(program)
