"""A server that goes away for a while: heartbeat and listener say so once, and once that it is back, however often they
have tried meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import pytest

from dalsegno.adapters.postgres import Listener, PostgresLedger, PostgresStore
from dalsegno.adapters.postgres.messaging import listener as listener_module
from dalsegno.engine.worker.heartbeat import Heartbeat
from tests.servers.postgres import PostgresServer
from tests.waiting import come_about

TRIES = 4
"""In vain, of which all but the first are told to whoever looks for details only."""
LEASE = 2.0
"""So that a beat is due every half second."""


class Lines:
    """What was told by whomever."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG, "dalsegno")
        self._caplog = caplog

    def at(self, level: int) -> list[str]:
        return [
            record.getMessage()
            for record in self._caplog.records
            if record.name.startswith("dalsegno.") and record.levelno == level
        ]

    def tries(self) -> int:
        return len(self.at(logging.WARNING)) + len(self.at(logging.DEBUG))


async def go_away_for_some_tries(
    server: PostgresServer, lines: Lines, is_back: Callable[[], object], *, go: Callable[[], None]
) -> None:
    await asyncio.to_thread(go)
    await come_about(lambda: lines.tries() >= TRIES, "it is tried again and again")
    await asyncio.to_thread(server.start)
    await come_about(is_back, "it goes on")


@pytest.fixture
async def heartbeat(private_postgres: PostgresServer) -> AsyncIterator[Heartbeat]:
    ledger = PostgresLedger(await PostgresStore.open(private_postgres.url))
    heartbeat = Heartbeat(ledger, lambda: {"w"}, LEASE)
    heartbeat.start()
    yield heartbeat
    heartbeat.stop()
    await ledger.close()


async def test_heartbeat_tells_once_that_the_store_is_away_and_once_that_it_is_back(
    private_postgres: PostgresServer, heartbeat: Heartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    lines = Lines(caplog)

    await go_away_for_some_tries(
        private_postgres, lines, lambda: lines.at(logging.INFO), go=private_postgres.kill
    )

    [lost], [found] = lines.at(logging.WARNING), lines.at(logging.INFO)
    assert lost.startswith("the heartbeat waits for the store: ")
    assert found.startswith("the store answers again, after ")


async def test_heartbeat_that_is_stopped_during_an_outage_leaves_nobody_waiting(
    private_postgres: PostgresServer, heartbeat: Heartbeat, caplog: pytest.LogCaptureFixture
) -> None:
    lines = Lines(caplog)
    await asyncio.to_thread(private_postgres.kill)
    await come_about(lambda: lines.at(logging.WARNING), "it is away")

    await asyncio.to_thread(heartbeat.stop)

    assert not heartbeat.outage.is_known
    assert lines.at(logging.INFO) == []


@pytest.fixture
async def listener(private_postgres: PostgresServer) -> AsyncIterator[Listener]:
    listener = Listener(private_postgres.url)
    listener.start()
    await come_about(lambda: listener.working, "it listens")
    yield listener
    await listener.close()


@pytest.mark.parametrize("way", ["stop", "kill"])
async def test_listener_tells_once_that_it_lost_postgresql_and_once_that_it_is_back(
    private_postgres: PostgresServer, listener: Listener, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    lines = Lines(caplog)
    go = {"stop": private_postgres.stop, "kill": private_postgres.kill}[way]

    for loss in (1, 2):
        caplog.clear()
        await go_away_for_some_tries(private_postgres, lines, lambda: listener.working, go=go)

        [lost], [found] = lines.at(logging.WARNING), lines.at(logging.INFO)
        assert lost.startswith("the listener lost PostgreSQL ("), loss
        assert found.startswith("PostgreSQL answers the listener again, after "), loss


async def test_listener_without_postgresql_says_so_again_now_and_then(
    private_postgres: PostgresServer,
    listener: Listener,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener_module, "REMIND_AFTER", 0.0)
    lines = Lines(caplog)

    await asyncio.to_thread(private_postgres.kill)
    await come_about(lambda: lines.tries() >= TRIES, "it is tried again and again")

    assert lines.at(logging.DEBUG) == []
    assert "lost PostgreSQL 0 s ago (" in lines.at(logging.WARNING)[1]


async def test_listener_that_is_given_another_connection_at_once_has_nothing_to_tell(
    private_postgres: PostgresServer, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    lines = Lines(caplog)
    gone = asyncio.Event()
    listener.on_disconnect = gone.set
    await come_about(lambda: listener.sent, "it has said hello")  # what is interrupted would be told

    private_postgres.psql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '%listener%'"
    )
    await asyncio.wait_for(gone.wait(), 20)
    await come_about(lambda: listener.working, "it listens again")

    assert (lines.at(logging.WARNING), lines.at(logging.INFO)) == ([], [])
