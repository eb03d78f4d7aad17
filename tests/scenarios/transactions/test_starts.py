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
from tests.scenarios.transactions.till import INSERT, Till


def start_within(till: Till, *, commit: bool) -> str:
    """The id of an execution started beside a row of the user's own, in one transaction."""
    app = till.stage.app
    app.deploy_script("workflow later(inputs) {\n  return inputs.n\n}\n")
    if not till.on_postgres:
        path = till.url.removeprefix("sqlite:///")
        connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(INSERT.format(name="order", amount=1))
        handle = app.with_options(connection=connection).start("later", n=7)
        connection.execute("COMMIT" if commit else "ROLLBACK")
        connection.close()
        return handle.id
    return asyncio.run_coroutine_threadsafe(_start_on_postgres(till, commit), _loop(app)).result(60)


async def _start_on_postgres(till: Till, commit: bool) -> str:
    connection = await asyncpg.connect(till.url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute('SET LOCAL search_path = public, "$user"')
        handle = await till.stage.app.with_options(connection=connection).astart("later", n=7)
        await connection.execute(INSERT.format(name="order", amount=1))
        assert await connection.fetchval("SHOW search_path") == 'public, "$user"', "the caller's own settings"
        await (transaction.commit() if commit else transaction.rollback())
    finally:
        await connection.close()
    return handle.id


def _loop(app: App) -> asyncio.AbstractEventLoop:
    assert app.host.loop is not None
    return app.host.loop


def test_start_is_there_once_the_caller_commits(till: Till) -> None:
    execution = start_within(till, commit=True)

    assert till.stage.app.handle(execution).result(30) == 7
    assert till.paid() == [("order", 1)]


def test_start_that_the_caller_undoes_never_was(till: Till) -> None:
    execution = start_within(till, commit=False)

    with pytest.raises(NotFound):
        till.stage.app.handle(execution).status()
    assert till.paid() == []


def test_start_needs_a_transaction_of_the_caller(till: Till) -> None:
    app = till.stage.app
    app.deploy_script("workflow later(inputs) {\n  return inputs.n\n}\n")
    with pytest.raises(UsageError, match="takes a"):
        app.with_options(connection=object()).start("later", n=1)
    if not till.on_postgres:
        connection = sqlite3.connect(till.url.removeprefix("sqlite:///"), check_same_thread=False)
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
