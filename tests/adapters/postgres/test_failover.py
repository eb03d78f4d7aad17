"""A primary dies and its standby takes over: processes find it by the store's URL, and nothing is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from dalsegno import App
from dalsegno.adapters.postgres import PostgresLedger, PostgresStore, PostgresTransactions
from dalsegno.adapters.postgres.diagnostics import examine_database
from dalsegno.adapters.urls import shown_url
from dalsegno.errors import StoreReadOnly, Unavailable
from dalsegno.server.application import create_application
from dalsegno.testing.contract.builders import start, token
from tests.adapters.postgres.programs import app_of, chain_of
from tests.adapters.postgres.standby import Pair, make_pair
from tests.servers.postgres import PostgresServer
from tests.servers.workspace import Workspace
from tests.waiting import come_about, until

PATIENCE = 90.0


@pytest.fixture
def pair(private_postgres: PostgresServer, server_workspace: Workspace) -> Iterator[Pair]:
    pair = make_pair(private_postgres, server_workspace.new_folder)
    yield pair
    pair.standby.discard()


@pytest.fixture
def app(pair: Pair, tmp_path: Path) -> App:
    file = tmp_path / "program.py"
    file.write_text(chain_of(8, pause=0.05))
    return app_of(file, pair.create_database("app"), lease_seconds=10.0)


LISTENERS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'dalsegno/% listener %'"
BEATS = "SELECT count(*) FROM dalsegno.worker WHERE expires_at > extract(epoch FROM clock_timestamp()) + 8"


def test_executions_in_flight_go_on_at_the_standby(pair: Pair, app: App) -> None:
    with app.running():
        before = [app.start("chain", number) for number in range(5)]
        assert [handle.result(timeout=PATIENCE) for handle in before] == [256 * n for n in range(5)]
        handles = [app.start("chain", number) for number in range(40)]
        until(lambda: min(handle.status().seq for handle in handles) > 4, "all are on their way")
        pair.fail_over()

        assert [handle.result(timeout=PATIENCE) for handle in handles] == [256 * n for n in range(40)]
        assert [handle.status().state for handle in before] == ["COMPLETED"] * 5
        assert app.start("chain", 3).result(timeout=PATIENCE) == 768
        until(lambda: pair.standby.psql(LISTENERS) == "1", "the listener listens there")
        until(lambda: pair.standby.psql(BEATS, "app") != "0", "heartbeats arrive there")


async def test_url_with_two_servers_leads_to_the_one_that_takes_writes(pair: Pair) -> None:
    url = pair.url_of("postgres")
    turned_round = pair.url_of("postgres").replace(str(pair.primary.port), "X")
    turned_round = turned_round.replace(str(pair.standby.port), str(pair.primary.port))
    turned_round = turned_round.replace("X", str(pair.standby.port))

    for each in (url, turned_round):
        facts = await examine_database(each, each)
        assert (facts.standby, facts.wakes) == (False, True)
    assert shown_url(url.replace("@", ":secret@")) == url.replace("@", ":***@")


async def test_servers_of_which_none_is_promoted_are_waited_for(pair: Pair) -> None:
    alone = pair.standby.url + "?target_session_attrs=read-write"
    with pytest.raises(Unavailable, match="promote one"):
        await PostgresStore.open(alone)


async def test_readiness_says_that_only_a_standby_is_left(pair: Pair, app: App) -> None:
    app.url = pair.url_of("app", "any")
    application = create_application(app)
    async with application.router.lifespan_context(application):
        transport = httpx.ASGITransport(application, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as http:

            async def answer() -> tuple[int, str]:
                told = await http.get("/v1/health/ready")
                return told.status_code, told.text

            async def is_standby() -> bool:
                status, text = await answer()
                return status == 503 and "DS-230" in text and "it is a standby" in text

            async def is_ready() -> bool:
                return (await answer())[0] == 200

            assert await is_ready()
            pair.primary.kill()
            await come_about(is_standby, "it is said that it is a standby")
            pair.promote()
            await come_about(is_ready, "it is ready again")


@pytest.fixture
async def ledger(postgres_url: str) -> AsyncIterator[PostgresLedger]:
    """With one connection."""
    ledger = PostgresLedger(await PostgresStore.open(postgres_url, connections=1))
    yield ledger
    await ledger.close()


async def test_session_of_a_server_that_was_demoted_is_given_up(
    ledger: PostgresLedger, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        await ledger.store._pool.execute("SET default_transaction_read_only = on")
        with pytest.raises(StoreReadOnly, match="25006"):
            await ledger.commit([start("run-1", token("a"))])
        await ledger.commit([start("run-1", token("a"))])

    assert caplog.text.count("target_session_attrs=read-write") == 1, "it is not said again and again"


async def test_session_without_its_prepared_statements_is_given_up(ledger: PostgresLedger) -> None:
    await ledger.store.fetch("look.now")
    await ledger.store._pool.execute("DEALLOCATE ALL")

    with pytest.raises(Unavailable, match="26000"):
        await ledger.store.fetch("look.now")
    assert await ledger.store.fetch("look.now")


async def test_readiness_gives_up_a_session_that_only_reads(ledger: PostgresLedger) -> None:
    await ledger.store.expect_writable()
    await ledger.store._pool.execute("SET default_transaction_read_only = on")

    with pytest.raises(StoreReadOnly, match="transaction_read_only is on"):
        await ledger.store.expect_writable()
    await ledger.store.expect_writable()


async def test_sessions_of_tasks_are_given_up_with_those_of_the_store(ledger: PostgresLedger) -> None:
    transactions = PostgresTransactions(ledger.store, ledger.commits)

    async def session() -> int:
        transaction = await transactions.open()
        found: int = await transaction.connection.fetchval("SELECT pg_backend_pid()")
        await transaction.rollback()
        return found

    before = await session()
    assert await session() == before
    await ledger.store._pool.execute("SET default_transaction_read_only = on")
    with pytest.raises(StoreReadOnly):
        await ledger.commit([start("run-1", token("a"))])

    assert await session() != before
    await transactions.close()
