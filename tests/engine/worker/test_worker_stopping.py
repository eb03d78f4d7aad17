"""A worker is stopped while the store is away: it says what it could not hand back, and ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from dalsegno import App
from dalsegno.engine.settings import EngineSettings
from dalsegno.errors import Unavailable
from dalsegno.model.token import Lease
from tests.scenarios.documents import graph, task
from tests.servers.postgres import PostgresServer
from tests.waiting import until

LONGEST_STOP = 30.0


class Hanging:
    """An application with one task that never returns."""

    def __init__(self, url: str) -> None:
        self.app = App(url, settings=EngineSettings(lease_seconds=5.0, grace=0.1))
        self.runs = 0
        self.app.task(self.hang)

    async def hang(self, value: int) -> None:
        self.runs += 1
        await asyncio.Event().wait()

    def start(self) -> None:
        self.app.deploy(graph("a", {"a": task("hang", 1)}))
        self.app.start("scenario")
        until(lambda: self.runs, "it runs")


def test_leases_that_cannot_be_handed_back_do_not_keep_a_worker_from_stopping(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hanging = Hanging("memory:")

    async def refuse(worker: str, leases: Sequence[Lease]) -> None:
        raise Unavailable("the store is away")

    with hanging.app.running():
        hanging.start()
        monkeypatch.setattr(hanging.app.engine.stack.ledger, "release", refuse)

    assert "1 leases of" in caplog.text
    assert "the store is away); they will expire" in caplog.text


def test_worker_stops_while_postgresql_is_away(
    private_postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = private_postgres.create_database("stopping")
    hanging = Hanging(url)
    with hanging.app.running():
        hanging.start()
        private_postgres.kill()
        began = time.monotonic()

    assert time.monotonic() - began < LONGEST_STOP
    assert "they will expire" in caplog.text
    private_postgres.start()
    again = Hanging(url)
    with again.app.running():
        until(lambda: again.runs, "it goes on elsewhere")
