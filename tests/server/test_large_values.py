"""Over a real socket: however many callers ask for large values, and however slowly they read, a server holds few."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest
import uvicorn
from msgspec.structs import replace

from dalsegno.app import App
from dalsegno.core.commands import cancel
from dalsegno.engine.client import Client
from dalsegno.engine.process import give_back_large_values
from dalsegno.model.transition import Applied
from dalsegno.server import ServerSettings, services
from dalsegno.server.application import Roles, create_application
from dalsegno.server.http.connections import http_protocol
from tests.peak_memory import peak_kib, reset_peak
from tests.server.conftest import LASTING, LiveServer

pytestmark = LASTING
MIB = 1024 * 1024
SIZE = 12 * MIB
COUNT = 10
SETTINGS = ServerSettings(large_bytes=2 * SIZE, reply_seconds=1.0)
NOTHING = {"name": "nothing", "nodes": [{"id": "a", "type": "log", "parameters": {"message": "ran"}}]}
PATIENCE = 60.0


async def large_outputs(app: App, count: int) -> list[str]:
    """Executions with outputs that nothing has computed."""
    async with app.running(worker=False, scheduler=False):
        await app.client.deploy(json.dumps(NOTHING))
        return [await _with_output(app.client) for _ in range(count)]


async def _with_output(client: Client) -> str:
    execution = await client.start("nothing")
    transition = cancel(execution, client.stack.ledger.now())
    output = b'"%b"' % (b"x" * (SIZE - 2))
    ended = replace(transition, effects=(replace(transition.effects[0], output=output),))  # type: ignore[type-var]
    outcomes: Sequence[object] = await client.stack.ledger.commit([ended])
    assert isinstance(outcomes[0], Applied), outcomes
    return execution


class Server(LiveServer):
    """With its own protocol, as ``dalsegno server`` has it, and without a worker."""

    def __init__(self, app: App) -> None:
        super().__init__(app, SETTINGS)
        application = create_application(app, SETTINGS, Roles(worker=False, scheduler=False))
        self._server = uvicorn.Server(
            uvicorn.Config(application, log_level="warning", http=http_protocol(SETTINGS))
        )


@pytest.fixture
def executions(store_url: str) -> list[str]:
    return asyncio.run(large_outputs(App(store_url), COUNT))


@pytest.fixture
def server(store_url: str, executions: list[str]) -> Iterator[Server]:
    give_back_large_values()
    with Server(App(store_url)) as made:
        assert httpx.get(f"{made.url}/v1/executions/{executions[0]}/wait").status_code == 200
        yield made


def asking(server: Server, path: str, *, slowly: bool = True) -> socket.socket:
    made = socket.socket()
    if slowly:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(PATIENCE)
    made.connect(server.socket.getsockname())
    made.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    return made


def taken(server: Server, path: str) -> tuple[int, int]:
    """Status and bytes of a reply of which nothing is kept."""
    with asking(server, path, slowly=False) as reading:
        buffer, count = bytearray(MIB), 0
        status = 0
        while got := reading.recv_into(buffer):
            status = status or int(buffer[9:12])
            count += got
    return status, count


def grown_mib(before: int) -> float:
    return (peak_kib() - before) / 1024


def test_looks_read_no_large_values(server: Server, executions: list[str]) -> None:
    before = reset_peak()
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as http:
        listed = http.get("/v1/executions?limit=100").json()["items"]
        seen = [
            http.get(f"/v1/executions/{each}{path}") for each in executions for path in ("/why", "/events")
        ]
        with http.stream("GET", "/v1/stream") as stream:
            assert next(stream.iter_raw())
    assert {each["id"] for each in listed} == set(executions)
    assert {each.status_code for each in seen} == {200}
    assert grown_mib(before) < SIZE / MIB


def test_large_replies_at_once_take_turns(server: Server, executions: list[str]) -> None:
    paths = [f"/v1/executions/{each}{more}" for each in executions for more in ("", "/wait")]
    before = reset_peak()
    with ThreadPoolExecutor(len(paths)) as callers:
        found = list(callers.map(lambda path: taken(server, path), paths))
    assert {status for status, _ in found} == {200}
    assert min(size for _, size in found) > SIZE
    assert grown_mib(before) < 5 * SIZE / MIB


def test_whoever_reads_slowly_holds_up_others_for_a_while_only(
    server: Server, executions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dalsegno.server.http.responses.LEAST_RATE", SIZE)
    before = reset_peak()
    stop = threading.Event()
    with ExitStack() as stack:
        slow = [stack.enter_context(asking(server, f"/v1/executions/{each}")) for each in executions]
        dripping = threading.Thread(target=drip, args=(slow, stop))
        dripping.start()
        try:
            status = 0
            while status != 200:
                status, size = taken(server, f"/v1/executions/{executions[0]}")
                assert status in (200, 503)
        finally:
            stop.set()
            dripping.join()
    assert size > SIZE
    assert grown_mib(before) < 5 * SIZE / MIB


def drip(readers: Sequence[socket.socket], stop: threading.Event) -> None:
    """Enough to be no reader that takes nothing at all, and far too little."""
    while not stop.is_set():
        for each in readers:
            try:
                each.setblocking(False)
                each.recv(65536)
            except OSError:
                continue
        time.sleep(0.2)


def test_who_waits_too_long_is_told_to_come_again(
    store_url: str, executions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "WAITING", dataclasses.replace(services.WAITING, wait_seconds=0.3))
    with Server(App(store_url)) as server, ExitStack() as stack:
        for each in executions:
            stack.enter_context(asking(server, f"/v1/executions/{each}"))
        time.sleep(0.5)
        reply = httpx.get(f"{server.url}/v1/executions/{executions[0]}", timeout=PATIENCE)
        listed = httpx.get(f"{server.url}/v1/executions", timeout=PATIENCE)
    assert (reply.status_code, reply.json()["code"]) == (503, "DS-211")
    assert int(reply.headers["Retry-After"]) >= 1
    assert listed.status_code == 200
