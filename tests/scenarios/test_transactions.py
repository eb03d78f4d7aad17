"""Work of tasks in one transaction with their steps, and starts in one with the caller's own work."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from dalsegno import App, TaskContext
from dalsegno.errors import NotFound, UsageError
from dalsegno.model.retry import RetryPolicy
from tests.scenarios.documents import graph, task
from tests.scenarios.stage import Stage

TABLE = "CREATE TABLE payment (name TEXT PRIMARY KEY, amount INTEGER NOT NULL)"
INSERT = "INSERT INTO payment (name, amount) VALUES ('{name}', {amount})"
GRAPH = graph("a > b", {"a": task("pay", "{{ $trigger }}"), "b": task("echo", "{{ $a }}")})
SCRIPT = 'workflow paying(inputs) {\n  return await Task.run("pay", inputs)\n}\n'
KINDS = ("graph", "script")


class Till:
    """The user's own table beside those of the store, and the tasks that write into it."""

    def __init__(self, stage: Stage, url: str) -> None:
        self.stage = stage
        self.url = url
        self.on_postgres = url.startswith("postgres")
        self.runs = 0
        self.then: Callable[[int], Awaitable[None]] | None = None
        """What a task does after its transaction."""
        self.execute("DROP TABLE IF EXISTS payment")
        self.execute(TABLE)
        stage.app.task(name="pay", retries=RetryPolicy(max_attempts=4, initial_delay=0))(
            self._pay_block if self.on_postgres else self._pay_work
        )

    async def _pay_block(self, ctx: TaskContext, name: str, amount: int) -> str:
        self.runs += 1
        async with ctx.transaction() as connection:
            await connection.execute(INSERT.format(name=name, amount=amount))
        if self.then is not None:
            await self.then(self.runs)
        return f"paid {name}"

    async def _pay_work(self, ctx: TaskContext, name: str, amount: int) -> str:
        self.runs += 1
        ctx.transaction(lambda connection: connection.execute(INSERT.format(name=name, amount=amount)))
        if self.then is not None:
            await self.then(self.runs)
        return f"paid {name}"

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        if self.on_postgres:
            return asyncio.run(_fetch(self.url, statement))
        with sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=30) as connection:
            return connection.execute(statement).fetchall()

    def paid(self) -> list[tuple[Any, ...]]:
        return self.execute("SELECT name, amount FROM payment ORDER BY name")


async def _fetch(url: str, statement: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/scenario.db"
    url: str = request.getfixturevalue("empty_postgres")()
    return url


@pytest.fixture
def till(stage: Stage, store_url: str) -> Till:
    return Till(stage, store_url)


def run(till: Till, kind: str, name: str = "a", amount: int = 5) -> Any:
    inputs = {"name": name, "amount": amount}
    if kind == "graph":
        return till.stage.run(GRAPH, inputs)
    return till.stage.run_script(SCRIPT, inputs)


@pytest.mark.parametrize("kind", KINDS)
def test_work_and_step_are_stored_together(till: Till, kind: str) -> None:
    ended = run(till, kind)

    assert (ended.state, ended.output) == ("COMPLETED", "paid a"), ended.error
    assert till.paid() == [("a", 5)]


@pytest.mark.parametrize("kind", KINDS)
def test_run_that_fails_after_its_work_leaves_nothing_of_it(till: Till, kind: str) -> None:
    async def fails_twice(number: int) -> None:
        if number <= 2:
            raise RuntimeError("not yet")

    till.then = fails_twice
    ended = run(till, kind)

    assert (ended.state, till.runs) == ("COMPLETED", 3)
    assert till.paid() == [("a", 5)]


@pytest.mark.parametrize("kind", KINDS)
def test_work_that_the_database_refuses_is_the_failure_of_the_task(till: Till, kind: str) -> None:
    till.execute(INSERT.format(name="a", amount=1))

    ended = run(till, kind)

    assert (ended.state, till.runs) == ("FAILED", 4), "and it was tried again as often as the task says"
    assert "payment" in ended.error["message"]
    assert till.paid() == [("a", 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_run_that_lost_its_lease_leaves_nothing(till: Till, kind: str) -> None:
    """It is run again elsewhere, and the late one is refused with all it wrote."""
    door = till.stage.door("late")
    engine = till.stage.app.engine

    async def loses_its_lease(number: int) -> None:
        if number == 1:
            assert engine.worker is not None
            lost = await engine.stack.ledger.expire(engine.worker.names())
            await engine.stack.broker.announce(lost)
            await door.passing("first")

    till.then = loses_its_lease
    inputs = {"name": "a", "amount": 5}
    stage = till.stage
    if not till.on_postgres:
        handle = stage.start(GRAPH, inputs) if kind == "graph" else stage.start_script(SCRIPT, inputs)
        assert stage.end_of(handle).state == "COMPLETED"
        door.open()
    else:
        # The late one holds the row of the user's own table until it gives up.
        handle = stage.start(GRAPH, inputs) if kind == "graph" else stage.start_script(SCRIPT, inputs)
        stage.until_comers(handle, "late")
        door.open()
        assert stage.end_of(handle).state == "COMPLETED"

    stage.until("both runs are over", handle, lambda: not engine.transactions.retries)
    assert till.runs == 2
    assert till.paid() == [("a", 5)]


@pytest.mark.parametrize("kind", KINDS)
def test_connection_that_is_lost_is_no_failure_of_the_task(till: Till, kind: str) -> None:
    """The token is handed back and run again, though the task is never retried for failures of its own."""
    if not till.on_postgres:
        return  # there is no connection to lose

    @till.stage.app.task
    async def careless(ctx: TaskContext, name: str, amount: int) -> str:
        till.runs += 1
        async with ctx.transaction() as connection:
            await connection.execute(INSERT.format(name=name, amount=amount))
            if till.runs == 1:
                own = await connection.fetchval("SELECT pg_backend_pid()")
                await asyncio.to_thread(till.execute, f"SELECT pg_terminate_backend({own})")
            await connection.execute("SELECT 1")
        return f"paid {name}"

    inputs = {"name": "a", "amount": 5}
    document = graph("a", {"a": task("careless", "{{ $trigger }}")})
    source = 'workflow c(inputs) {\n  return await Task.run("careless", inputs)\n}\n'
    ended = till.stage.run(document, inputs) if kind == "graph" else till.stage.run_script(source, inputs)

    assert (ended.state, till.runs) == ("COMPLETED", 2), ended.error
    assert till.paid() == [("a", 5)]


def test_constraint_that_is_checked_at_the_end_fails_the_task(till: Till) -> None:
    if till.on_postgres:
        till.execute("ALTER TABLE payment ADD CONSTRAINT once UNIQUE (amount) DEFERRABLE INITIALLY DEFERRED")
    else:
        till.execute("CREATE UNIQUE INDEX once ON payment (amount)")
    till.execute(INSERT.format(name="before", amount=5))

    ended = run(till, "script")

    assert (ended.state, till.runs) == ("FAILED", 4)
    assert till.paid() == [("before", 5)]


def test_work_on_sqlite_ends_no_transaction_and_touches_no_table_of_the_store(
    stage: Stage, tmp_path: Path
) -> None:
    def meddle(ctx: TaskContext, statement: str) -> None:
        ctx.transaction(lambda connection: connection.execute(statement))

    if stage.app.url.startswith("sqlite"):
        stage.app.task(name="meddle")(meddle)
        source = 'workflow m(inputs) {\n  return await Task.run("meddle", inputs.s)\n}\n'
        for statement in (
            "COMMIT",
            "DELETE FROM token",
            "DROP TABLE flight",
            "UPDATE machine SET version = 0",
        ):
            ended = stage.run_script(source, {"s": statement})
            assert ended.state == "FAILED"
            assert "not authorized" in ended.error["message"]
        assert stage.run_script(source, {"s": "SELECT 1"}).state == "COMPLETED"


def test_wrong_form_says_which_is_right(till: Till) -> None:
    app = till.stage.app

    @app.task
    async def block(ctx: TaskContext) -> None:
        async with ctx.transaction():
            pass

    @app.task
    async def work(ctx: TaskContext) -> None:
        ctx.transaction(lambda connection: None)

    @app.task
    def plain_block(ctx: TaskContext) -> None:
        with ctx.transaction():  # type: ignore[attr-defined]
            pass

    words = "async with ctx.transaction()" if till.on_postgres else "ctx.transaction(lambda"
    for name in ("plain_block", "work" if till.on_postgres else "block"):
        ended = till.stage.run_script(f'workflow w(inputs) {{\n  return await Task.run("{name}", null)\n}}\n')
        assert ended.state == "FAILED"
        assert words in ended.error["message"]


def test_store_in_memory_has_no_transactions() -> None:
    with Stage("memory:") as stage:

        @stage.app.task
        async def block(ctx: TaskContext) -> None:
            async with ctx.transaction():
                pass

        ended = stage.run_script('workflow w(inputs) {\n  return await Task.run("block", null)\n}\n')
        assert "needs a store on SQLite or PostgreSQL" in ended.error["message"]


# -- starts ---------------------------------------------------------------------------------------------------


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


# -- kill -9 --------------------------------------------------------------------------------------------------

PROGRAM = """
import asyncio, sys
from dalsegno import App, TaskContext
from dalsegno.model.retry import RetryPolicy

url = sys.argv[1]
app = App(url)
INSERT = "INSERT INTO paid (name) VALUES ('{}')"

if url.startswith("postgres"):
    @app.task(retries=RetryPolicy(max_attempts=100, initial_delay=0))
    async def pay(ctx, name: str) -> str:
        async with ctx.transaction() as connection:
            await connection.execute(INSERT.format(name))
        return name
else:
    @app.task(retries=RetryPolicy(max_attempts=100, initial_delay=0))
    def pay(ctx, name: str) -> str:
        ctx.transaction(lambda connection: connection.execute(INSERT.format(name)))
        return name

@app.workflow
async def paying(number: int) -> int:
    for turn in range(5):
        await pay(f"{number}-{turn}")
    return number

async def main():
    async with app.running():
        handles = [await app.with_options(idempotency_key=str(n)).astart(paying, n) for n in range(int(sys.argv[2]))]
        print("started", flush=True)
        for handle in handles:
            await handle.aresult(120)
        print("done", flush=True)

asyncio.run(main())
"""


def test_kill_minus_nine_pays_once(store_url: str, tmp_path: Path) -> None:
    """The table has no key: whatever happened twice would be there twice."""
    program = tmp_path / "paying.py"
    program.write_text(PROGRAM)
    till_url, executions, kills = store_url, 20, 6
    _prepare(till_url)
    chance = random.Random(7)
    for _ in range(kills):
        process = _run(program, till_url, executions)
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "started"
        time.sleep(chance.uniform(0.0, 0.4))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    process = _run(program, till_url, executions)
    out, _ = process.communicate(timeout=240)
    assert out.split() == ["started", "done"]

    rows = _ask(till_url, "SELECT name FROM paid ORDER BY name")
    assert sorted(name for (name,) in rows) == sorted(
        f"{n}-{turn}" for n in range(executions) for turn in range(5)
    )


def _run(program: Path, url: str, executions: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(program), url, str(executions)], stdout=subprocess.PIPE, text=True
    )


def _prepare(url: str) -> None:
    _ask(url, "DROP TABLE IF EXISTS paid")
    _ask(url, "CREATE TABLE paid (name TEXT)")


def _ask(url: str, statement: str) -> list[tuple[Any, ...]]:
    if url.startswith("postgres"):
        return asyncio.run(_fetch(url, statement))
    app = App(url)
    with app.running():
        pass  # the file is a store before it holds a table of the user's
    with sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30) as connection:
        return connection.execute(statement).fetchall()
