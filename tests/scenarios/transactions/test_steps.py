"""Work of tasks in one transaction with their steps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dalsegno import NodeContext
from tests.scenarios.documents import graph, task
from tests.scenarios.stage import Stage
from tests.scenarios.transactions.own_table import INSERT, OwnTable

GRAPH = graph("a > b", {"a": task("pay", "{{ $trigger }}"), "b": task("echo", "{{ $a }}")})
SCRIPT = 'workflow paying(inputs) {\n  return await Task.run("pay", inputs)\n}\n'
KINDS = ("graph", "script")


def run(own_table: OwnTable, kind: str, name: str = "a", amount: int = 5) -> Any:
    inputs = {"name": name, "amount": amount}
    if kind == "graph":
        return own_table.stage.run(GRAPH, inputs)
    return own_table.stage.run_script(SCRIPT, inputs)


@pytest.mark.parametrize("kind", KINDS)
def test_work_and_step_are_stored_together(own_table: OwnTable, kind: str) -> None:
    ended = run(own_table, kind)

    assert (ended.state, ended.output) == ("COMPLETED", "paid a"), ended.error
    assert own_table.paid() == [("a", 5)]


@pytest.mark.parametrize("kind", KINDS)
def test_run_that_fails_after_its_work_leaves_nothing_of_it(own_table: OwnTable, kind: str) -> None:
    async def fails_twice(number: int) -> None:
        if number <= 2:
            raise RuntimeError("not yet")

    own_table.then = fails_twice
    ended = run(own_table, kind)

    assert (ended.state, own_table.runs) == ("COMPLETED", 3)
    assert own_table.paid() == [("a", 5)]


@pytest.mark.parametrize("kind", KINDS)
def test_work_that_the_database_refuses_is_the_failure_of_the_task(own_table: OwnTable, kind: str) -> None:
    own_table.execute(INSERT.format(name="a", amount=1))

    ended = run(own_table, kind)

    assert (ended.state, own_table.runs) == ("FAILED", 4), "and it was tried again as often as the task says"
    assert "payment" in ended.error["message"]
    assert own_table.paid() == [("a", 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_run_that_lost_its_lease_leaves_nothing(own_table: OwnTable, kind: str) -> None:
    """It is run again elsewhere, and the late one is refused with all it wrote."""
    door = own_table.stage.door("late")
    engine = own_table.stage.app.engine

    async def loses_its_lease(number: int) -> None:
        if number == 1:
            assert engine.worker is not None
            lost = await engine.stack.ledger.expire(engine.worker.names())
            await engine.stack.broker.announce(lost)
            await door.passing("first")

    own_table.then = loses_its_lease
    inputs = {"name": "a", "amount": 5}
    stage = own_table.stage
    if not own_table.on_postgres:
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
    assert own_table.runs == 2
    assert own_table.paid() == [("a", 5)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
def test_connection_that_is_lost_is_no_failure_of_the_task(own_table: OwnTable, kind: str) -> None:
    """The token is handed back and run again, though the task is never retried for failures of its own."""

    @own_table.stage.app.task
    async def careless(ctx: NodeContext, name: str, amount: int) -> str:
        own_table.runs += 1
        async with ctx.transaction() as connection:
            await connection.execute(INSERT.format(name=name, amount=amount))
            if own_table.runs == 1:
                own = await connection.fetchval("SELECT pg_backend_pid()")
                await asyncio.to_thread(own_table.execute, f"SELECT pg_terminate_backend({own})")
            await connection.execute("SELECT 1")
        return f"paid {name}"

    inputs = {"name": "a", "amount": 5}
    document = graph("a", {"a": task("careless", "{{ $trigger }}")})
    source = 'workflow c(inputs) {\n  return await Task.run("careless", inputs)\n}\n'
    ended = (
        own_table.stage.run(document, inputs)
        if kind == "graph"
        else own_table.stage.run_script(source, inputs)
    )

    assert (ended.state, own_table.runs) == ("COMPLETED", 2), ended.error
    assert own_table.paid() == [("a", 5)]


def test_constraint_that_is_checked_at_the_end_fails_the_task(own_table: OwnTable) -> None:
    if own_table.on_postgres:
        own_table.execute(
            "ALTER TABLE payment ADD CONSTRAINT once UNIQUE (amount) DEFERRABLE INITIALLY DEFERRED"
        )
    else:
        own_table.execute("CREATE UNIQUE INDEX once ON payment (amount)")
    own_table.execute(INSERT.format(name="before", amount=5))

    ended = run(own_table, "script")

    assert (ended.state, own_table.runs) == ("FAILED", 4)
    assert own_table.paid() == [("before", 5)]


CHECK_AT_THE_END = """
CREATE OR REPLACE FUNCTION check_payment() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {check}; RETURN NULL; END $$
"""
AT_THE_END = """
CREATE CONSTRAINT TRIGGER at_the_end AFTER INSERT ON payment DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION check_payment()
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("RAISE EXCEPTION 'too much'", "too much"),
        ("PERFORM 1 FROM no_such_table", "no_such_table"),
        ("PERFORM 1 / (NEW.amount - NEW.amount)", "division by zero"),
        ("RAISE EXCEPTION 'not allowed' USING ERRCODE = '28P01'", "not allowed"),
        ("RAISE EXCEPTION 'not ready' USING ERRCODE = '55000'", "not ready"),
    ],
    ids=["P0001", "42P01", "22012", "28P01", "55000"],
)
def test_trigger_that_raises_at_the_end_fails_the_task_with_its_retries(
    own_table: OwnTable, kind: str, check: str, said: str
) -> None:
    own_table.execute(CHECK_AT_THE_END.format(check=check))
    own_table.execute(AT_THE_END)

    ended = run(own_table, kind)

    assert (ended.state, own_table.runs) == ("FAILED", 4)
    assert "at COMMIT: " in ended.error["message"]
    assert said in ended.error["message"]
    assert own_table.paid() == []


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("code", ["40001", "55P03"])
def test_conflict_between_transactions_at_the_end_is_no_failure_of_the_task(
    own_table: OwnTable, code: str
) -> None:
    """The task is run again, and none of its attempts is used up."""
    own_table.execute("CREATE SEQUENCE IF NOT EXISTS tried")
    own_table.execute("ALTER SEQUENCE tried RESTART")
    check = f"IF nextval('tried') = 1 THEN RAISE EXCEPTION 'beside another' USING ERRCODE = '{code}'; END IF"
    own_table.execute(CHECK_AT_THE_END.format(check=check))
    own_table.execute(AT_THE_END)

    ended = run(own_table, "script")

    assert (ended.state, own_table.runs) == ("COMPLETED", 2), ended.error
    assert [event["attempt"] for event in ended.data("TaskCompleted", "pay")] == [1]


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "statement", ["COMMIT", "DELETE FROM token", "DROP TABLE flight", "UPDATE machine SET version = 0"]
)
def test_work_on_sqlite_ends_no_transaction_and_touches_no_table_of_the_store(
    stage: Stage, statement: str
) -> None:
    @stage.app.task
    def meddle(ctx: NodeContext, statement: str) -> None:
        ctx.transaction(lambda connection: connection.execute(statement))

    source = 'workflow m(inputs) {\n  return await Task.run("meddle", inputs.s)\n}\n'

    ended = stage.run_script(source, {"s": statement})

    assert ended.state == "FAILED"
    assert "not authorized" in ended.error["message"]
    assert stage.run_script(source, {"s": "SELECT 1"}).state == "COMPLETED"


def test_wrong_form_says_which_is_right(own_table: OwnTable) -> None:
    app = own_table.stage.app

    @app.task
    async def block(ctx: NodeContext) -> None:
        async with ctx.transaction():
            pass

    @app.task
    async def work(ctx: NodeContext) -> None:
        ctx.transaction(lambda connection: None)

    @app.task
    def plain_block(ctx: NodeContext) -> None:
        with ctx.transaction():  # type: ignore[attr-defined]
            pass

    words = "async with ctx.transaction()" if own_table.on_postgres else "ctx.transaction(lambda"
    for name in ("plain_block", "work" if own_table.on_postgres else "block"):
        ended = own_table.stage.run_script(
            f'workflow w(inputs) {{\n  return await Task.run("{name}", null)\n}}\n'
        )
        assert ended.state == "FAILED"
        assert words in ended.error["message"]


def test_store_in_memory_has_no_transactions() -> None:
    with Stage("memory:") as stage:

        @stage.app.task
        async def block(ctx: NodeContext) -> None:
            async with ctx.transaction():
                pass

        ended = stage.run_script('workflow w(inputs) {\n  return await Task.run("block", null)\n}\n')
        assert "needs a store on SQLite or PostgreSQL" in ended.error["message"]
