"""Through a real PgBouncer in transaction mode, without any setting of PgBouncer's, the user's or the database's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import asyncpg
import pytest

from dalsegno import App, NodeContext, gather, signal, sleep
from dalsegno.adapters.postgres import Listener, PostgresBroker, PostgresStore
from dalsegno.engine.settings import EngineSettings
from dalsegno.errors import InvalidInput, Unavailable
from dalsegno.handle import Handle
from dalsegno.wiring import LISTEN_VARIABLE
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until
from tests.servers.workspace import Workspace

DATABASE = "pooled"
PATIENCE = 60.0
SESSIONS = 3
"""Fewer than connections: every transaction comes to another session than the one before."""
SETTINGS = ("search_path", "synchronous_commit", "enable_seqscan", "plan_cache_mode", "lock_timeout")

LISTENING = "(SELECT count(*) FROM pg_listening_channels())"


@pytest.fixture
def pooler(server_workspace: Workspace, private_postgres: PostgresServer) -> Iterator[PgBouncer]:
    folder = server_workspace.new_folder("pgbouncer")
    with PgBouncer(folder, private_postgres, default_pool_size=str(SESSIONS)) as pooler:
        private_postgres.create_database(DATABASE)
        yield pooler


def application(url: str) -> App:
    app = App(url, settings=EngineSettings(lease_seconds=5.0))

    @app.task
    async def double(number: int) -> int:
        return number * 2

    @app.task
    async def book(ctx: NodeContext, number: int) -> None:
        async with ctx.transaction() as connection:
            await connection.execute("INSERT INTO public.booked VALUES ($1)", number)

    @app.workflow
    async def plain(number: int) -> int:
        total = await double(number)
        await sleep(0.05)
        return total + sum(await gather(*[double(place) for place in range(3)]))

    @app.workflow
    async def mixed(number: int) -> int:
        total = await double(number)
        await sleep(0.05)
        total += sum(await gather(*[double(place) for place in range(3)]))
        await book(number)
        return total + int(await signal("more"))

    return app


def test_two_processes_share_their_work_over_shared_sessions(
    pooler: PgBouncer, private_postgres: PostgresServer
) -> None:
    private_postgres.psql("CREATE TABLE public.booked (number int NOT NULL)", DATABASE)
    with ExitStack() as running:
        first, second = (
            running.enter_context(application(pooler.url_of(DATABASE)).running()) for _ in range(2)
        )
        handles = [(first, second)[number % 2].start("mixed", number) for number in range(40)]
        for handle in handles:
            handle.signal("more", 100)
        results = [handle.result(PATIENCE) for handle in handles]
        states = {handle.status().state for handle in handles}
        assert asyncio.run(settings_of_sessions(pooler)) == {tuple(defaults(private_postgres))}
        assert asyncio.run(of_sessions(pooler, LISTENING)) == {(0,)}
    assert results == [number * 2 + 6 + 100 for number in range(40)]
    assert states == {"COMPLETED"}
    booked = private_postgres.psql("SELECT number FROM public.booked ORDER BY 1", DATABASE)
    assert booked.split() == [str(number) for number in range(40)]
    complaints = ("prepared statement", "does not exist", "deadlock")
    assert not any(complaint in private_postgres.log_text() for complaint in complaints)


def defaults(postgres: PostgresServer) -> list[str]:
    asked = ", ".join(f"current_setting('{name}')" for name in SETTINGS)
    return postgres.psql(f"SELECT {asked}", DATABASE).split("|")


async def settings_of_sessions(pooler: PgBouncer) -> set[tuple[str, ...]]:
    return await of_sessions(pooler, ", ".join(f"current_setting('{name}')" for name in SETTINGS))


async def of_sessions(pooler: PgBouncer, asked: str) -> set[tuple[Any, ...]]:
    """As strangers who use the same pooler find them."""
    connections = [
        await asyncpg.connect(pooler.url_of(DATABASE), statement_cache_size=0) for _ in range(SESSIONS)
    ]
    try:
        for connection in connections:  # each keeps its session until it commits
            await connection.execute("BEGIN")
        rows = [await connection.fetchrow(f"SELECT {asked}") for connection in connections]
        for connection in connections:
            await connection.execute("ROLLBACK")
        return {tuple(row) for row in rows}
    finally:
        for connection in connections:
            await connection.close()


def test_without_wake_ups_work_of_others_is_found_by_looking(
    pooler: PgBouncer, private_postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    private_postgres.psql("CREATE TABLE public.booked (number int NOT NULL)", DATABASE)
    with caplog.at_level(logging.INFO, "dalsegno.postgres"), application(pooler.url_of(DATABASE)).running():
        wait_until(lambda: LISTEN_VARIABLE in caplog.text, seconds=PATIENCE, what="the warning")
        assert "behind a pooler" in caplog.text
        assert asyncio.run(of_sessions(pooler, LISTENING)) == {(0,)}
        elsewhere = App(pooler.url_of(DATABASE))
        handle = elsewhere.start("mixed", 1)
        handle.signal("more", 100)
        assert handle.result(PATIENCE) == 108
        elsewhere.close()


def test_direct_url_brings_wake_ups_back(
    pooler: PgBouncer,
    private_postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(LISTEN_VARIABLE, private_postgres.url_of(DATABASE))
    app = application(pooler.url_of(DATABASE))
    with app.running():
        broker = app.engine.stack.broker
        assert isinstance(broker, PostgresBroker)
        wait_until(lambda: broker.listener.working, seconds=PATIENCE, what="messages")
    assert LISTEN_VARIABLE not in caplog.text


def test_pooler_that_dies_is_ridden_out(pooler: PgBouncer) -> None:
    app = application(pooler.url_of(DATABASE))
    with app.running():
        handles = [app.start("plain", number) for number in range(10)]
        pooler.kill()
        pooler.start()
        wait_until(lambda: all(map(has_ended, handles)), seconds=PATIENCE, what="all endings")
        assert [handle.result(PATIENCE) for handle in handles] == [number * 2 + 6 for number in range(10)]


def has_ended(handle: Handle) -> bool:
    try:
        return handle.status().ended_at is not None
    except Unavailable:
        return False  # the pooler is away; its caller asks again


async def test_listener_tries_nothing_in_a_session_that_is_not_its_own(
    pooler: PgBouncer, private_postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "dalsegno.postgres"):
        listener = Listener(pooler.url_of(DATABASE))
        assert await listener._serve() is False
    assert LISTEN_VARIABLE in caplog.text
    sessions = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{DATABASE}'"
    assert private_postgres.psql(sessions).strip() == "0"  # it was not even given one


async def test_what_takes_the_settings_of_a_session_is_told_from_what_only_seems_to(
    server_workspace: Workspace, private_postgres: PostgresServer
) -> None:
    ignoring = {
        "ignore_startup_parameters": "search_path,jit,enable_seqscan,plan_cache_mode,dalsegno.session"
    }
    with PgBouncer(server_workspace.new_folder("pgbouncer"), private_postgres, **ignoring) as deaf:
        for url, pooled in ((private_postgres.url, False), (deaf.url, True)):
            store = await PostgresStore.open(url)
            assert store.mode.pooled is pooled
            await store.close()


async def test_failed_statement_leaves_its_session_clean(pooler: PgBouncer) -> None:
    store = await PostgresStore.open(pooler.url_of(DATABASE))
    for _ in range(SESSIONS * 2):
        with pytest.raises(InvalidInput):
            await store.fetch("blobs.put", "execution", None, b"", None, None)
    assert await store.fetch("look.now")
    await store.close()
