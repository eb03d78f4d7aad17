"""Starts in one transaction with the caller's own work."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path

import asyncpg
import pytest

from dalsegno import App
from dalsegno.errors import NotFound, UsageError
from tests.scenarios.transactions.own_table import INSERT, OwnTable


def start_within(own_table: OwnTable, *, commit: bool) -> str:
    """The id of an execution started beside a row of the user's own, in one transaction."""
    app = own_table.stage.app
    app.deploy_script("workflow later(inputs) {\n  return inputs.n\n}\n")
    if not own_table.on_postgres:
        path = own_table.url.removeprefix("sqlite:///")
        connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(INSERT.format(name="order", amount=1))
        handle = app.with_options(connection=connection).start("later", n=7)
        connection.execute("COMMIT" if commit else "ROLLBACK")
        connection.close()
        return handle.id
    return asyncio.run_coroutine_threadsafe(_start_on_postgres(own_table, commit), _loop(app)).result(60)


async def _start_on_postgres(own_table: OwnTable, commit: bool) -> str:
    connection = await asyncpg.connect(own_table.url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute('SET LOCAL search_path = public, "$user"')
        handle = await own_table.stage.app.with_options(connection=connection).astart("later", n=7)
        await connection.execute(INSERT.format(name="order", amount=1))
        assert await connection.fetchval("SHOW search_path") == 'public, "$user"', "the caller's own settings"
        await (transaction.commit() if commit else transaction.rollback())
    finally:
        await connection.close()
    return handle.id


def _loop(app: App) -> asyncio.AbstractEventLoop:
    assert app.host.loop is not None
    return app.host.loop


def test_start_is_there_once_the_caller_commits(own_table: OwnTable) -> None:
    execution = start_within(own_table, commit=True)

    assert own_table.stage.app.handle(execution).result(30) == 7
    assert own_table.paid() == [("order", 1)]


def test_start_that_the_caller_undoes_never_was(own_table: OwnTable) -> None:
    execution = start_within(own_table, commit=False)

    with pytest.raises(NotFound):
        own_table.stage.app.handle(execution).status()
    assert own_table.paid() == []


def test_start_needs_a_transaction_of_the_caller(own_table: OwnTable) -> None:
    app = own_table.stage.app
    app.deploy_script("workflow later(inputs) {\n  return inputs.n\n}\n")
    with pytest.raises(UsageError, match="takes a"):
        app.with_options(connection=object()).start("later", n=1)
    if not own_table.on_postgres:
        connection = sqlite3.connect(own_table.url.removeprefix("sqlite:///"), check_same_thread=False)
        with pytest.raises(UsageError, match="begin a transaction"):
            app.with_options(connection=connection).start("later", n=1)
        connection.close()


def test_start_with_a_delay_begins_in_time(tmp_path: Path) -> None:
    """Nothing else tells the process of it: on SQLite it would look by itself only after five seconds."""
    path = tmp_path / "delayed.db"
    app = App(f"sqlite:///{path}")
    with app.running():
        app.deploy_script("workflow later(inputs) {\n  return inputs.n\n}\n")
        time.sleep(0.1)  # the first look for timers is over
        connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        connection.execute("BEGIN IMMEDIATE")
        handle = app.with_options(connection=connection, delay=0.5).start("later", n=7)
        began = time.monotonic()
        connection.execute("COMMIT")
        connection.close()
        assert handle.result(30) == 7
        assert 0.4 < time.monotonic() - began < 3.5
