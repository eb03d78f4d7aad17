"""A server in this process, on every stack, spoken to over ASGI or over a real socket."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Self

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from dalsegno.app import App
from dalsegno.engine.upkeep.reconciler import Reconciler
from dalsegno.server import ServerSettings
from dalsegno.server.application import Roles, create_application
from tests.server.silence import Witness
from tests.servers.postgres import PostgresServer
from tests.stacks import STORES, url_of

LASTING = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
"""For tests with several processes: a store that outlives the one that opened it."""


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, request, tmp_path)


@pytest.fixture
def app(store_url: str) -> App:
    made = App(store_url)

    @made.task
    async def double(n: int) -> int:
        return n * 2

    @made.task
    async def fail() -> None:
        raise ValueError("no luck")

    return made


@pytest.fixture
def leases_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """With workers that are dead, for tests that look at them: a round that falls in between would take them back."""

    async def nothing(reconciler: Reconciler) -> None:
        pass

    monkeypatch.setattr(Reconciler, "take_back_leases", nothing)


@pytest.fixture
def application(app: App) -> FastAPI:
    """With time for long work also where the machine is busy: it is to end by what it counts."""
    return create_application(app, ServerSettings(check_seconds=60.0))


@pytest.fixture
async def http(application: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Speaks to the application directly; its engine runs on the test's loop."""
    async with application.router.lifespan_context(application):
        transport = httpx.ASGITransport(application, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as client:
            yield client


@pytest.fixture
def witness(http: httpx.AsyncClient, private_postgres: PostgresServer) -> Witness:
    """For servers whose store is the private one."""
    return Witness(http, private_postgres)


class LiveServer:
    """A real server on a free port of the loopback address, in a thread of its own."""

    def __init__(self, app: App, settings: ServerSettings | None = None, roles: Roles | None = None) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        port = self.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        application = create_application(app, settings or ServerSettings(port=port), roles)
        self._server = uvicorn.Server(uvicorn.Config(application, log_level="warning"))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        asyncio.run(self._server.serve([self.socket]))

    def __enter__(self) -> Self:
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            self._thread.join(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(20)


@pytest.fixture
def live(app: App) -> Iterator[LiveServer]:
    with LiveServer(app) as server:
        yield server
