"""Transactions of PostgreSQL that a task has brought to an end itself: it fails, instead of running for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from dalsegno import App, NodeContext
from dalsegno.adapters.postgres import transactions
from dalsegno.model.failure import RetryPolicy
from tests.scenarios.asking import ask
from tests.scenarios.documents import graph, task
from tests.scenarios.stage import Stage

Spoil = Callable[[Any], Awaitable[object]]

INSERT = "INSERT INTO payment VALUES ('{}')"
GRAPH = graph("a", {"a": task("pay", "{{ $trigger }}")})
SCRIPT = 'workflow paying(inputs) {\n  return await Task.run("pay", inputs)\n}\n'
KINDS = ("graph", "script")
PAUSE = 0.3


@pytest.fixture
def store_url(empty_postgres: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(transactions, "LONGEST_PAUSE", PAUSE)
    url = empty_postgres()
    ask(url, "DROP TABLE IF EXISTS payment")
    ask(url, "CREATE TABLE payment (name TEXT PRIMARY KEY)")
    return url


class Payer:
    """A task that writes, and then does something to its transaction, or after it."""

    def __init__(self, app: App) -> None:
        self.runs = 0
        self.inside: Spoil | None = None
        self.after: Spoil | None = None
        app.task(name="pay", retries=RetryPolicy(max_attempts=2, initial_delay=0))(self._pay)

    async def _pay(self, ctx: NodeContext) -> str:
        self.runs += 1
        async with ctx.transaction() as connection:
            await connection.execute(INSERT.format(f"run-{self.runs}"))
            if self.inside is not None:
                await self.inside(connection)
        if self.after is not None:
            await self.after(connection)
        return "paid"


@pytest.fixture
def payer(stage: Stage) -> Payer:
    return Payer(stage.app)


def run(stage: Stage, kind: str = "script") -> Any:
    return stage.run(GRAPH, None) if kind == "graph" else stage.run_script(SCRIPT, None)


async def swallow(connection: Any) -> None:
    with pytest.raises(asyncpg.UniqueViolationError):
        await connection.execute(INSERT.format("before"))


@pytest.mark.parametrize("kind", KINDS)
def test_error_that_was_swallowed_fails_the_task(
    stage: Stage, store_url: str, payer: Payer, kind: str
) -> None:
    ask(store_url, INSERT.format("before"))
    payer.inside = swallow

    ended = run(stage, kind)

    assert (ended.state, payer.runs) == ("FAILED", 2), "its retries apply"
    assert ended.error["code"] == "TRANSACTION_ABORTED"
    assert ask(store_url, "SELECT name FROM payment") == ["before"]


def test_error_that_a_savepoint_caught_is_none(stage: Stage, store_url: str, payer: Payer) -> None:
    ask(store_url, INSERT.format("before"))

    async def swallow_well(connection: Any) -> None:
        with pytest.raises(asyncpg.UniqueViolationError):
            async with connection.transaction():
                await connection.execute(INSERT.format("before"))

    payer.inside = swallow_well

    assert run(stage).state == "COMPLETED"
    assert ask(store_url, "SELECT name FROM payment ORDER BY name") == ["before", "run-1"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK", "COMMIT; BEGIN", "COMMIT AND CHAIN"])
def test_task_that_ends_its_transaction_fails_without_a_retry(
    stage: Stage, store_url: str, payer: Payer, kind: str, statement: str
) -> None:
    payer.inside = lambda connection: connection.execute(statement)

    ended = run(stage, kind)

    assert (ended.state, payer.runs) == ("FAILED", 1)
    assert ended.error["code"] == "TRANSACTION_ENDED"
    assert "check what it wrote" in ended.error["message"]
    written = ["run-1"] if "COMMIT" in statement else []
    assert ask(store_url, "SELECT name FROM payment") == written


async def sleep_too_long(_: Any) -> None:
    await asyncio.sleep(PAUSE * 2)


async def sleep_and_go_on(connection: Any) -> None:
    await asyncio.sleep(PAUSE * 2)
    await connection.execute("SELECT 1")


async def block_the_loop(_: Any) -> None:
    time.sleep(PAUSE * 2)  # noqa: ASYNC251 - as a task may do that is not written with care


async def block_and_go_on(connection: Any) -> None:
    time.sleep(PAUSE * 2)  # noqa: ASYNC251
    await connection.execute("SELECT 1")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pause", [sleep_too_long, sleep_and_go_on, block_the_loop, block_and_go_on])
def test_pause_that_is_too_long_fails_the_task(
    stage: Stage, store_url: str, payer: Payer, kind: str, pause: Spoil
) -> None:
    payer.inside = pause

    ended = run(stage, kind)

    assert (ended.state, payer.runs) == ("FAILED", 2), "its retries apply"
    assert ended.error["code"] == "TRANSACTION_IDLE"
    assert f"{PAUSE:g} s" in ended.error["message"]
    assert ask(store_url, "SELECT name FROM payment") == []


def test_pause_after_the_block_counts_too(stage: Stage, payer: Payer) -> None:
    payer.after = sleep_too_long

    assert run(stage).error["code"] == "TRANSACTION_IDLE"


def test_long_statement_is_no_pause(stage: Stage, store_url: str, payer: Payer) -> None:
    """The server is killed under one: no failure of the task, which is run again."""

    async def work_on(connection: Any) -> None:
        own = await connection.fetchval("SELECT pg_backend_pid()")
        if payer.runs == 1:
            asyncio.get_running_loop().call_later(
                PAUSE * 2, lambda: asyncio.ensure_future(kill(store_url, own))
            )
            await connection.execute("SELECT pg_sleep(30)")
        await connection.execute(f"SELECT pg_sleep({PAUSE * 2})")

    payer.inside = work_on
    ended = run(stage)

    assert (ended.state, payer.runs) == ("COMPLETED", 2), ended.error
    assert ask(store_url, "SELECT name FROM payment") == ["run-2"]


async def kill(url: str, backend: int) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(f"SELECT pg_terminate_backend({backend})")
    await connection.close()


def test_connections_are_given_back(stage: Stage, payer: Payer) -> None:
    """There are eight of them; more tasks than that come to nothing."""
    payer.inside = lambda connection: connection.execute("ROLLBACK")
    for _ in range(transactions.MOST_OPEN + 1):
        assert run(stage).error["code"] == "TRANSACTION_ENDED"

    payer.inside = None
    assert run(stage).state == "COMPLETED"
