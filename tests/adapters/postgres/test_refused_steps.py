"""Steps that PostgreSQL does not store: what is its own trouble is waited for, and only a bad value fails a step."""

from __future__ import annotations

import logging

import pytest

from dalsegno import NodeContext
from dalsegno.engine.operations.dead_letters import DeadLetter, DeadLetters
from dalsegno.handle import Handle
from tests.adapters.postgres.faulty import FaultyHistory
from tests.scenarios.documents import echo, graph, task
from tests.scenarios.stage import Ended, Stage
from tests.servers.postgres import PostgresServer
from tests.waiting import until

HELD = graph("h > b", {"h": task("hold", "h"), "b": echo("{{ $h }}")})
SCRIPT = 'return await Task.run("hold", "h")'


@pytest.fixture
def history(postgres_server: PostgresServer, postgres_url: str) -> FaultyHistory:
    return FaultyHistory(postgres_server, postgres_url)


@pytest.mark.parametrize("state", ["58030", "XX000", "53200", "42703", "ZZ999"])
@pytest.mark.parametrize("kind", ["graph", "script"])
def test_trouble_of_the_server_fails_nobody(
    postgres_url: str, history: FaultyHistory, state: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "dalsegno.outage")  # what is tried again is a warning once a minute only
    with Stage(postgres_url) as stage:
        handles = [stage.start_script(SCRIPT) if kind == "script" else stage.start(HELD) for _ in range(5)]
        stage.until_comers(handles[0], "h", len(handles))

        history.refuse(state)
        stage.door("h").open()
        until(lambda: caplog.text.count(f"SQLSTATE {state}") >= 2, "it is tried again")
        history.mend()

        ended = [stage.end_of(handle) for handle in handles]
        assert [(one.state, one.output) for one in ended] == [("COMPLETED", "h")] * 5
        assert len(stage.door("h").comers) == 5, "no task runs twice"


def test_value_that_cannot_be_held_fails_its_own_step_alone(
    postgres_url: str, history: FaultyHistory, caplog: pytest.LogCaptureFixture
) -> None:
    with Stage(postgres_url) as stage:
        handle = stage.start(HELD)
        stage.until_comers(handle, "h")
        history.refuse("22021", "NodeCompleted")
        stage.door("h").open()

        ended = stage.end_of(handle)

        assert code_of(ended) == "NOT_STORABLE"
        assert f"a step of execution {handle.id} is refused" in caplog.text
        assert "SQLSTATE 22021" in caplog.text
        history.mend()
        assert stage.run(HELD).state == "COMPLETED"


def test_value_that_cannot_be_held_undoes_the_work_of_its_task(
    postgres_url: str, postgres_server: PostgresServer, history: FaultyHistory
) -> None:
    database = postgres_url.rpartition("/")[2]
    postgres_server.psql("CREATE TABLE public.booking (n integer)", database)
    with Stage(postgres_url) as stage:

        @stage.app.task
        async def book(ctx: NodeContext, n: int) -> int:
            async with ctx.transaction() as connection:
                await connection.execute("INSERT INTO public.booking VALUES ($1)", n)
            return n

        stage.app.deploy(graph("a", {"a": task("book", 1)}))
        history.refuse("22021", "NodeCompleted")

        ended = stage.end_of(stage.app.start("scenario"))

        assert code_of(ended) == "NOT_STORABLE"
        assert postgres_server.psql("SELECT count(*) FROM public.booking", database) == "0"


@pytest.mark.parametrize("kind", ["graph", "script"])
def test_failure_that_cannot_be_held_either_is_put_off_and_shows_as_a_dead_letter(
    postgres_url: str, history: FaultyHistory, kind: str
) -> None:
    with Stage(postgres_url) as stage:
        handle = stage.start_script(SCRIPT) if kind == "script" else stage.start(HELD)
        stage.until_comers(handle, "h")
        history.refuse("22021")
        stage.door("h").open()

        letter = until(lambda: dead_letter(stage), "it is a dead letter")

        assert (letter.kind, letter.execution) == ("token", handle.id)
        assert "refuses the step, and its failure too" in letter.reason
        # Mended between a step and its failure, the store would take the failure.
        until(lambda: sleeps(stage, handle), "nothing of it is under way")
        history.mend()
        until(lambda: has_ended(stage, handle), "it has ended")
        assert stage.end_of(handle).output == "h"


def sleeps(stage: Stage, handle: Handle) -> bool:
    found = stage.app.host.call(stage.app.engine.stack.ledger.inspect(handle.id))
    return found is not None and {view.state for view in found.tokens} == {"parked"}


def has_ended(stage: Stage, handle: Handle) -> bool:
    """Time passes: it may have been put off once more just now."""
    stage.pass_time(20)
    try:
        handle.wait(0.2)
    except TimeoutError:
        return False
    return True


def dead_letter(stage: Stage) -> DeadLetter | None:
    """Time passes until it has been tried often enough."""
    stage.pass_time(20)
    letters = stage.app.host.call(DeadLetters(stage.app.engine).all())
    return letters[0] if letters else None


def code_of(ended: Ended) -> str:
    assert ended.error is not None
    return str(ended.error["code"])
