"""Starts in transactions of the caller: from any event loop, and only in the database of the store."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from dalsegno import App
from dalsegno.adapters.postgres import caller_connections
from dalsegno.adapters.postgres.caller_connections import Place
from dalsegno.errors import NotFound, UsageError
from tests.docs.pages import DOCS, blocks
from tests.scenarios.asking import ask
from tests.servers.forking import run_python

LATER = "workflow later(inputs) {\n  return inputs.n\n}\n"


@pytest.fixture
def app(postgres_url: str) -> Iterator[App]:
    """Open, as in a program that only starts: its engine has a thread and a loop of its own."""
    app = App(postgres_url)
    app.deploy_script(LATER)
    yield app
    app.close()


# -- another event loop ---------------------------------------------------------------------------------------


async def start_within(app: App, url: str, *, commit: bool) -> str:
    connection = await asyncpg.connect(url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        handle = await app.with_options(connection=connection).astart("later", n=7)
        await (transaction.commit() if commit else transaction.rollback())
    finally:
        await connection.close()
    return handle.id


def test_program_that_only_starts_needs_no_loop_of_the_app(app: App, postgres_url: str) -> None:
    undone = asyncio.run(start_within(app, postgres_url, commit=False))
    done = asyncio.run(start_within(app, postgres_url, commit=True))

    with pytest.raises(NotFound):
        app.handle(undone).status()
    with app.running():
        assert app.handle(done).result(30) == 7


def test_error_of_the_database_reaches_the_caller(app: App, postgres_url: str) -> None:
    """And its own transaction is left as it was."""

    async def start_twice() -> list[Any]:
        pool = await asyncpg.create_pool(postgres_url)
        async with pool.acquire() as connection, connection.transaction():
            within = app.with_options(connection=connection, idempotency_key="k")
            first, second = await within.astart("later", n=1), await within.astart("later", n=1)
            with pytest.raises(NotFound):
                await within.astart("unknown", n=1)
            assert await connection.fetchval("SELECT 1") == 1
        await pool.close()
        return [first.id, second.id]

    assert len(set(asyncio.run(start_twice()))) == 1
    assert len(app.executions()) == 1


def test_plain_start_on_the_loop_of_the_connection_is_refused(
    app: App, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller_connections, "ANSWERS_WITHIN", 0.2)

    async def block() -> None:
        connection = await asyncpg.connect(postgres_url)
        try:
            async with connection.transaction():
                app.with_options(connection=connection).start("later", n=1)
        finally:
            await connection.close()

    with pytest.raises(UsageError, match="astart"):
        asyncio.run(block())


def test_connection_whose_loop_stands_still_is_refused(app: App, postgres_url: str) -> None:
    async def opened() -> Any:
        connection = await asyncpg.connect(postgres_url)
        await connection.execute("BEGIN")
        return connection

    loop = asyncio.new_event_loop()
    connection = loop.run_until_complete(opened())
    with pytest.raises(UsageError, match="does not run"):
        app.with_options(connection=connection).start("later", n=1)
    loop.run_until_complete(connection.close())
    loop.close()


def test_program_of_the_manual_runs(postgres_url: str, tmp_path: Path) -> None:
    [block] = [one for one in blocks(DOCS / "how-to" / "transactions.md") if "def take_order" in one.body]
    program = tmp_path / "orders.py"
    program.write_text(block.body.replace("postgresql://shop@db/shop", postgres_url))
    ask(postgres_url, "CREATE TABLE orders (id TEXT PRIMARY KEY)")

    ended = run_python(str(program))

    assert (ended.returncode, ended.stderr) == (0, "")
    app = App(postgres_url)
    [handle] = app.executions("checkout")
    assert ended.stdout.split() == ["started", handle.id]
    assert ask(postgres_url, "SELECT id FROM orders") == ["o-1"]
    app.close()


# -- another database -----------------------------------------------------------------------------------------


def test_other_database_of_the_server_is_refused(app: App, empty_postgres: Callable[[], str]) -> None:
    url = empty_postgres()
    other = App(url)
    other.deploy_script(LATER)

    with pytest.raises(UsageError, match="the store is in 'test_"):
        asyncio.run(start_within(app, url, commit=True))

    assert (app.executions(), other.executions()) == ([], [])
    other.close()


def test_same_name_on_another_server_is_another_database() -> None:
    here = Place("shop", "16384", "7301")
    assert here.is_same(Place("shop", "16384", "7301"))
    assert not here.is_same(Place("shop", "16384", "7302"))
    assert not here.is_same(Place("shop", "16399", None))
    assert here.is_same(Place("shop", "16384", None)), "its user may not ask for the server"


@pytest.mark.parametrize("other", ["other.db", ":memory:"])
def test_other_file_is_refused(tmp_path: Path, other: str) -> None:
    app = App(f"sqlite:///{tmp_path}/store.db")
    app.deploy_script(LATER)
    path = other if other == ":memory:" else str(tmp_path / other)
    if other != ":memory:":
        second = App(f"sqlite:///{path}")
        second.deploy_script(LATER)
        second.close()
    connection = begun(path)

    with pytest.raises(UsageError, match="one transaction only in one file"):
        app.with_options(connection=connection).start("later", n=1)

    connection.close()
    app.close()


def test_file_may_have_two_names(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/store.db")
    app.deploy_script(LATER)
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "store.db")
    connection = begun(str(link))

    handle = app.with_options(connection=connection).start("later", n=1)
    connection.execute("COMMIT")

    assert handle.status().id == handle.id
    connection.close()
    app.close()


def begun(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE" if path != ":memory:" else "BEGIN")
    return connection
