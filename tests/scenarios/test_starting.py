"""Starting: idempotency keys, tags, priorities, queues, versions, input schemas."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dalsegno.engine.worker.worker import Worker
from dalsegno.errors import InvalidInput, NotFound, UsageError
from tests.scenarios.documents import echo, graph, hold, task
from tests.scenarios.stage import LEASE, Stage
from tests.stacks import STORES


def test_the_same_idempotency_key_names_the_same_execution(stage: Stage) -> None:
    document = graph("a", {"a": task("note", "{{ $trigger.n }}")})
    first = stage.run(document, {"n": 1}, idempotency_key="order-1")
    second = stage.run(document, {"n": 2}, idempotency_key="order-1")
    third = stage.run(document, {"n": 3}, idempotency_key="order-2")
    assert first.id == second.id
    assert second.output == 1
    assert third.id != first.id
    assert stage.seen == [1, 3]


def test_a_key_belongs_to_its_workflow(stage: Stage) -> None:
    one = stage.run(graph("a", name="one"), idempotency_key="k")
    two = stage.run(graph("a", name="two"), idempotency_key="k")
    assert one.id != two.id


def test_tags_select_executions(stage: Stage) -> None:
    red = stage.run(graph("a"), tags={"colour": "red", "size": "1"})
    stage.run(graph("a"), tags={"colour": "blue"})
    found = stage.app.executions("scenario", tags={"colour": "red"})
    assert [handle.id for handle in found] == [red.id]
    assert dict(red.handle.status().tags) == {"colour": "red", "size": "1"}
    assert len(stage.app.executions("scenario")) == 2
    assert stage.app.executions("another") == []


@pytest.mark.parametrize("store_url", STORES, indirect=True)  # a broker has not brought all of them yet
def test_higher_priorities_go_first(store_url: str) -> None:
    with Stage(store_url, concurrency=1) as stage:
        blocker = stage.start(graph("h", {"h": hold("h")}, name="blocker"))
        stage.until_comers(blocker, "h")
        document = graph("a", {"a": task("note", "{{ $trigger.p }}")})
        handles = [stage.start(document, {"p": priority}, priority=priority) for priority in (0, 5, 1, 9, 5)]
        stage.door("h").open()
        for handle in handles:
            stage.end_of(handle)
        assert stage.seen == [9, 5, 5, 1, 0]


def test_a_node_on_another_queue_waits_for_a_worker_that_serves_it(stage: Stage) -> None:
    handle = stage.start(graph("a > b > c", {"b": echo("b", queue="gpu")}))
    stage.until_state(handle, "b", "QUEUED")
    [waiting] = handle.why()
    assert (waiting.kind, waiting.node, waiting.queue) == ("queued", "b", "gpu")
    assert waiting.sentence == (
        "node 'b' waits for a worker that serves queue 'gpu'; no worker serves queue 'gpu' now"
    )
    with serving(stage, "gpu"):
        assert stage.end_of(handle).output == "c"


@contextmanager
def serving(stage: Stage, queue: str) -> Iterator[None]:
    """A second worker of the same process, for another queue."""
    engine, host = stage.app.engine, stage.app.host
    ledger, broker = engine.stack.ledger, engine.stack.broker
    ledger.heartbeat("second", LEASE)

    async def begin() -> tuple[Worker, asyncio.Task[None]]:
        worker = Worker(
            "second", ledger, broker, engine.committer, engine.steps, engine.scripts, queues=(queue,)
        )
        return worker, asyncio.create_task(worker.run())

    async def end(worker: Worker, running: asyncio.Task[None]) -> None:
        await worker.stop(1.0)
        running.cancel()

    second = host.call(begin())
    try:
        yield
    finally:
        host.call(end(*second))


def test_a_task_may_ask_for_its_queue(stage: Stage) -> None:
    @stage.app.task(queue="slow")
    async def heavy(value: int) -> int:
        return value

    handle = stage.start(graph("a", {"a": task("heavy", 1)}))
    stage.until_state(handle, "a", "QUEUED")
    with serving(stage, "slow"):
        assert stage.end_of(handle).output == 1


def test_a_task_of_a_script_may_ask_for_its_queue(stage: Stage) -> None:
    @stage.app.task(queue="slow")
    async def heavy(value: int) -> int:
        return value

    handle = stage.start_script('return await Task.run("heavy", 1)')
    stage.until_event(handle, "Suspended", "task heavy")
    [waiting] = handle.why()
    assert "waits for a worker that serves queue 'slow'" in waiting.sentence
    with serving(stage, "slow"):
        assert stage.end_of(handle).output == 1


def test_versions_run_what_they_were_deployed_as(stage: Stage) -> None:
    one = stage.app.deploy(graph("a", {"a": echo(1)}))
    two = stage.app.deploy(graph("a", {"a": echo(2)}))
    assert (one.version, two.version) == (1, 2)
    assert stage.app.deploy(graph("a", {"a": echo(1)})).version == 1
    assert stage.app.with_options(version=2).start("scenario").result(30) == 2
    assert stage.app.start("scenario").result(30) == 1
    with pytest.raises(NotFound, match="has no version 7"):
        stage.app.with_options(version=7).start("scenario")


def test_an_execution_in_flight_keeps_its_version(stage: Stage) -> None:
    handle = stage.start(graph("h > b", {"h": hold("h"), "b": echo(1)}))
    stage.until_comers(handle, "h")
    stage.app.deploy(graph("h > b", {"h": hold("h"), "b": echo(2)}))
    stage.door("h").open()
    assert stage.end_of(handle).output == 1


def test_an_unknown_workflow_is_named_with_those_that_exist(stage: Stage) -> None:
    stage.app.deploy(graph("a"))
    with pytest.raises(NotFound, match=r"no workflow is named 'nobody'; deployed here: 'scenario'$"):
        stage.app.start("nobody")
    with pytest.raises(NotFound, match=r"no workflow is named 'scenari'; did you mean 'scenario'\?"):
        stage.app.start("scenari")
    for number in range(12):
        stage.app.deploy({**graph("a"), "name": f"n{number:02}"})
    with pytest.raises(NotFound, match=r"'n00', .*'n09' … and 3 more$"):
        stage.app.start("nobody")


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("payload", "where"),
    [({}, "n"), ({"n": 0}, "/n"), ({"n": "1"}, "/n"), ({"n": 1, "m": 2}, "m"), ([], "object")],
)
def test_a_payload_that_does_not_fit_the_schema_starts_nothing(
    stage: Stage, payload: object, where: str
) -> None:
    stage.app.deploy(graph("a", input_schema=SCHEMA))
    with pytest.raises(InvalidInput, match="does not fit the workflow's input_schema") as refused:
        stage.app.start("scenario", payload)
    assert where in str(refused.value)
    assert stage.app.executions() == []


def test_a_payload_that_fits_the_schema_starts(stage: Stage) -> None:
    assert stage.run(graph("a", {"a": echo("{{ $trigger.n }}")}, input_schema=SCHEMA), {"n": 3}).output == 3


def test_keywords_make_an_object_and_exclude_a_payload(stage: Stage) -> None:
    stage.app.deploy(graph("a", {"a": echo("{{ $trigger }}")}))
    assert stage.app.start("scenario", n=1, m=2).result(30) == {"n": 1, "m": 2}
    with pytest.raises(UsageError, match="not both"):
        stage.app.start("scenario", {"n": 1}, m=2)
    assert len(stage.app.executions()) == 1


@pytest.mark.parametrize("name", ["a/b", "a@3", "a\tb", "a" * 201])
def test_a_script_is_not_deployed_under_a_name_that_cannot_be_one(stage: Stage, name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be a script's name: 'name' must"):
        stage.app.deploy_script("return 1", name)
    assert stage.app.host.call(stage.app.client.stack.archive.definitions()) == []


def test_a_python_workflow_has_a_name_that_a_start_can_say(stage: Stage) -> None:
    with pytest.raises(InvalidInput, match="'name' must not hold '@'"):

        @stage.app.workflow(name="checkout@3")
        async def checkout() -> None:
            return None
