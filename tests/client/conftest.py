"""A live server on SQLite, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dalsegno import App, Client
from tests.server.conftest import LiveServer
from tests.servers.sqlite import empty_sqlite


@pytest.fixture
def app(tmp_path: Path) -> App:
    made = App(empty_sqlite(tmp_path / "server.db"))

    @made.task
    async def double(n: int) -> int:
        return n * 2

    @made.task
    async def fail() -> None:
        raise ValueError("no luck")

    return made


@pytest.fixture
def live(app: App) -> Iterator[LiveServer]:
    with LiveServer(app) as server:
        yield server


@pytest.fixture
def client(live: LiveServer) -> Iterator[Client]:
    with Client(live.url) as made:
        yield made
