"""A task that no living worker has: what needs it waits, says so, and is taken up by the next worker that has it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from dalsegno import App, WorkflowCancelled, WorkflowFailed
from dalsegno.engine.operations.dead_letters import DeadLetter, DeadLetters
from dalsegno.engine.operations.unfinished_versions import OwnProgram, lacking_versions, offered_by_others
from dalsegno.engine.settings import EngineSettings
from dalsegno.engine.worker import tokens
from dalsegno.handle import Handle
from dalsegno.model.failure import RetryPolicy
from dalsegno.nodes import NodeParameters
from dalsegno.ports.node import NodeContext
from tests.scenarios.conftest import LASTING
from tests.scenarios.documents import graph, task
from tests.waiting import until

GRAPH = {
    "name": "shop",
    "nodes": [{"id": "pay", "type": "task", "parameters": {"task": "charge", "input": 1}}],
}
SCRIPT = 'const order = 1\nreturn await Task.run("charge", order)'
AGES = 300.0
"""No token wakes by itself in these tests."""


@pytest.fixture(autouse=True)
def sleeping_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told at once that a task is missing, and what needs it sleeps for long."""
    monkeypatch.setattr(tokens, "LASTING", 0.0)
    monkeypatch.setattr(tokens, "pause_before_next_try", lambda seconds, token: AGES)


def letters(app: App) -> list[DeadLetter]:
    return app.host.call(DeadLetters(app.engine).all())


def start_graph(app: App) -> Handle:
    app.deploy(GRAPH)
    return app.start("shop")


def start_script(app: App) -> Handle:
    app.deploy_script(SCRIPT, "shop")
    return app.start("shop")


def with_charge(url: str, **settings: Any) -> App:
    app = App(url, settings=EngineSettings(**settings))

    @app.task
    async def charge(order: int) -> str:
        return f"charged {order}"

    return app


@LASTING
@pytest.mark.parametrize(
    ("start", "place"),
    [
        (start_graph, "node 'pay' of version 1 of 'shop'"),
        (start_script, "line 2 of version 1 of 'shop'"),
    ],
    ids=["graph", "script"],
)
def test_it_is_told_of_and_taken_up_by_a_worker_that_has_it(
    store_url: str, start: Callable[[App], Handle], place: str
) -> None:
    without = App(store_url)
    with without.running():
        handle = start(without)
        (letter,) = until(lambda: letters(without), "a dead letter")
        expected = (
            "task 'charge' is missing in every running worker; start or deploy a program that has it"
            f" ({place}, queue 'default')"
        )
        assert (letter.execution, letter.workflow, letter.reason) == (handle.id, "shop", expected)
        assert handle.status().state == "RUNNING"
        assert expected in str(
            until(lambda: [each for each in handle.why() if each.kind == "trouble"], "why")
        )
        with with_charge(store_url).running():
            assert handle.result(30) == "charged 1"
        assert letters(without) == []


@LASTING
def test_worker_of_another_queue_leaves_it_alone(store_url: str) -> None:
    without = App(store_url)
    with without.running():
        handle = start_graph(without)
        until(lambda: letters(without), "a dead letter")
        with with_charge(store_url, queues=("billing",)).running() as other:
            assert other is not None
            until(lambda: len(without.host.call(without.client.stack.ledger.workers())) == 2, "both work")
        assert (handle.status().state, len(letters(without))) == ("RUNNING", 1)


@LASTING
def test_letter_of_a_token_that_runs_or_waits_for_its_next_try_is_gone(store_url: str) -> None:
    without, tried = App(store_url), App(store_url)

    @tried.task(retries=RetryPolicy(max_attempts=2, initial_delay=AGES))
    async def charge(order: int) -> str:
        raise RuntimeError("the card is refused")

    with without.running():
        handle = start_script(without)
        until(lambda: letters(without), "a dead letter")
        with tried.running():
            until(lambda: any(event.kind == "TaskRetrying" for event in handle.events()), "its retry")
            assert letters(without) == []
            assert not [each for each in handle.why() if each.kind == "trouble"]


def test_a_retry_of_its_letter_tries_it_at_once(store_url: str) -> None:
    app = App(store_url)
    with app.running():
        handle = start_graph(app)
        (letter,) = until(lambda: letters(app), "a dead letter")

        @app.task
        async def charge(order: int) -> str:
            return f"charged {order}"

        app.host.call(DeadLetters(app.engine).retry(letter.id))
        assert handle.result(30) == "charged 1"


def test_what_waits_can_be_paused_cancelled_and_terminated(store_url: str) -> None:
    app = App(store_url)
    with app.running():
        handles = [start_graph(app), start_script(app), start_script(app)]
        until(lambda: len(letters(app)) == 3, "three letters")
        for handle in handles:
            handle.pause()
        assert {handle.status().state for handle in handles} == {"PAUSED"}
        for handle in handles:
            handle.resume()
        handles[0].cancel()
        handles[1].cancel()
        handles[2].terminate()
        for handle in handles:
            with pytest.raises(WorkflowCancelled):
                handle.result(30)
        assert [each for each in letters(app) if each.kind == "token"] == []


@pytest.mark.parametrize("kind", ["graph", "script"])
def test_timeouts_pass_while_it_waits(store_url: str, kind: str) -> None:
    app = App(store_url)
    with app.running():
        if kind == "graph":
            app.deploy({**GRAPH, "timeout": "1s"})
        else:
            app.deploy_script(f"```\ntimeout: 1s\n```\n{SCRIPT}", "shop")
        with pytest.raises(WorkflowFailed, match="did not end within"):
            app.start("shop").result(30)
        assert letters(app) == []


@pytest.mark.parametrize("start", [start_graph, start_script], ids=["graph", "script"])
def test_where_nobody_else_can_come_it_fails_at_once(start: Callable[[App], Handle]) -> None:
    app = App("memory:", settings=EngineSettings(missing_tasks="fail"))
    with (
        app.running(),
        pytest.raises(WorkflowFailed, match="task 'charge' cannot be run: no task is registered"),
    ):
        start(app).result(30)


def test_of_many_that_need_it_each_is_tried_once_and_few_ask(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("memory:")
    with app.running(), caplog.at_level(logging.WARNING, "dalsegno.worker"):
        ledger, elsewhere = app.engine.stack.ledger, app.engine.elsewhere
        asked, tried, look, workers = [], [], elsewhere.look_for_task, ledger.workers

        async def counted_look(name: str, run: NodeContext) -> None:
            tried.append(name)
            await look(name, run)

        async def counted_workers() -> Any:
            asked.append(1)
            return await workers()

        monkeypatch.setattr(app.tasks, "look_elsewhere", counted_look)
        monkeypatch.setattr(ledger, "workers", counted_workers)
        app.deploy(graph("a", {"a": task("charge", 1)}))
        for _ in range(300):
            app.start("scenario")
        until(
            lambda: len(app.host.call(app.client.stack.records.page("trouble", limit=500))) == 300,
            "all sleep",
        )
        assert (len(tried), len(asked) < 100) == (300, True)
    assert len([record for record in caplog.records if "'charge' is missing" in record.getMessage()]) == 1


@LASTING
def test_node_type_that_a_script_runs_is_waited_for_too(store_url: str) -> None:
    without, having = App(store_url), App(store_url)

    @having.node("loyalty", parameters=NodeParameters)
    async def loyalty(ctx: NodeContext, parameters: NodeParameters) -> int:
        return 7

    with without.running():
        without.deploy_script('return await Node.run("loyalty", {})', "points")
        handle = without.start("points")
        (letter,) = until(lambda: letters(without), "a dead letter")
        assert "node type 'loyalty' is missing in every running worker" in letter.reason
        with having.running():
            assert handle.result(30) == 7


CALLS = """
const [first, second] = [Task.run("charge", 1), Task.with({queue: "billing"}).run("bill", 1)]
return [await first, await Task.run(inputs.dynamic, 1)]
"""


@LASTING
def test_versions_in_flight_are_held_against_a_program(store_url: str) -> None:
    """Tasks by plain text, tasks that were asked for, and not those of other queues or other workers."""
    app = App(store_url, settings=EngineSettings(queues=("default",)))

    def lacking(
        *tasks: str, queues: tuple[str, ...] = ("default",)
    ) -> list[tuple[str, tuple[str, ...], int]]:
        own = OwnProgram(app.workflows, tasks, queues)
        found = app.host.call(lacking_versions(app.client, own))
        return [(each.workflow, each.tasks, each.executions) for each in found]

    with app.running():
        app.deploy(GRAPH | {"name": "a graph"})
        app.deploy_script(CALLS, "a script")
        app.start("a graph")
        for _ in range(2):
            app.start("a script", dynamic="collect")
        until(lambda: len(letters(app)) == 3, "three wait")
        assert lacking() == [("a graph", ("charge",), 1), ("a script", ("charge",), 2)]
        assert lacking(queues=("billing",)) == [("a script", ("bill", "charge"), 2)]
        assert lacking("charge") == []
        with with_charge(store_url).running():
            dynamic = [("a script", ("collect",), 2)]
            until(lambda: lacking("charge") == dynamic, "the dynamic ones wait")
            is_offered = app.host.call(offered_by_others(app.client))
            asked = [("charge", "default"), ("charge", None), ("charge", "billing"), ("collect", None)]
            assert [is_offered(task) for task in asked] == [True, True, False, False]
