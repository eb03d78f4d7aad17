"""Tasks for workers of other programs over RabbitMQ: handed out, answered, lost, late, and faults of the broker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dalsegno.adapters.rabbitmq.amqp import frames
from dalsegno.adapters.rabbitmq.foreign_messages import CODE, REASON
from dalsegno.engine.settings import REMOTE_VARIABLE
from dalsegno.errors import Unavailable
from tests.adapters.broker_app import GRAPH, BrokerApp, ended, foreign_workers, health, result_of
from tests.adapters.rabbitmq.foreign_worker import ForeignWorker, rabbit_app
from tests.servers.rabbitmq import RabbitServer
from tests.waiting import come_about

TASKS, ANNOUNCED, DEAD = "tasks.images", "workflow.execution.q.images", "workflow.execution.dead"


EXAMPLE = Path(__file__).parents[3] / "examples" / "broker_workers" / "rabbitmq_worker.py"


def test_example_worker_is_short_and_imports_nothing_of_ours() -> None:
    lines = EXAMPLE.read_text().splitlines()
    assert len(lines) <= 60
    assert not any("dalsegno" in line for line in lines if line.startswith(("import", "from")))


async def test_example_worker_runs_tasks_and_its_death_costs_a_loss(
    app: BrokerApp, rabbitmq_url: str
) -> None:
    with example_worker(rabbitmq_url) as first:
        assert await ended(app, await app.begin()) == "COMPLETED"
        watcher = await ForeignWorker.connect(rabbitmq_url, "mails")
        await app.adeploy({**GRAPH, "nodes": [{**GRAPH["nodes"][0], "parameters": SLOW}]})
        execution = await app.begin()

        async def is_running() -> bool:
            return await app.is_handed_out(execution) and await watcher.depth(TASKS) == 0

        await come_about(is_running, "the worker runs it", 20.0)
        first.kill()
        first.wait()
    with example_worker(rabbitmq_url):
        assert await ended(app, execution) == "COMPLETED"
    assert await app.output(execution) == {"file": "a-small.png"}
    assert app.lost == 1
    await watcher.connection.close()


SLOW = {"task": "resize", "input": {"file": "{{ input.file }}", "tenths": 12}}


@contextmanager
def example_worker(url: str) -> Iterator[subprocess.Popen[bytes]]:
    program = subprocess.Popen([sys.executable, str(EXAMPLE), url, "images"])
    try:
        yield program
    finally:
        program.kill()
        program.wait()


@pytest.fixture(autouse=True)
def handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REMOTE_VARIABLE, "images, mails")


@pytest.fixture
async def app(rabbitmq_url: str) -> AsyncIterator[BrokerApp]:
    async with rabbit_app("memory:", rabbitmq_url).deployed() as app:
        yield app


@pytest.fixture
async def worker(rabbitmq_url: str) -> AsyncIterator[ForeignWorker]:
    worker = await ForeignWorker.connect(rabbitmq_url)
    yield worker
    await worker.connection.close()


async def test_task_is_handed_out_and_its_result_taken_in(app: BrokerApp, worker: ForeignWorker) -> None:
    execution = await app.begin()
    task = await worker.take()
    assert (task["name"], task["input"], task["execution"]) == ("resize", {"file": "a.png"}, execution)
    [message] = worker.taken.values()
    assert message.properties.headers == {"traceparent": task["traceparent"]}
    await worker.complete(task, "small")
    assert await result_of(app, execution) == "small"
    await come_about(lambda: app.results == {"taken": 1}, "the result is counted")

    async def empty() -> bool:
        return not any([await worker.depth(queue) for queue in (TASKS, ANNOUNCED, "workflow.results")])

    await come_about(empty, "nothing is left")


async def test_higher_priority_is_delivered_first(app: BrokerApp, rabbitmq_url: str) -> None:
    executions = [await app.begin(f"{number}.png", priority) for number, priority in enumerate((0, -2, 7, 3))]
    watcher = await ForeignWorker.connect(rabbitmq_url, "mails")
    await watcher.channel.declare_queue(TASKS, arguments={"x-max-priority": 10})

    async def all_out() -> bool:
        return await watcher.depth(TASKS) == 4

    await come_about(all_out, "all are handed out")
    worker = await ForeignWorker.connect(rabbitmq_url)
    order = []
    for _ in executions:
        task = await worker.take()
        order.append(executions.index(task["execution"]))
        await worker.complete(task)
    assert order[:2] == [2, 3]
    for execution in executions:
        assert await ended(app, execution) == "COMPLETED"
    for each in (worker, watcher):
        await each.connection.close()


async def test_task_of_a_gone_connection_is_handed_out_with_the_next_fence(
    app: BrokerApp, worker: ForeignWorker, rabbitmq_url: str
) -> None:
    """Another worker gets the message from RabbitMQ, and reports the loss instead of running it."""
    execution = await app.begin()
    first = await worker.take()
    other = await ForeignWorker.connect(rabbitmq_url)
    await worker.die()
    second = await other.take()
    assert second["id"] == first["id"]
    assert second["fence"] > first["fence"]
    assert app.lost == 1
    await other.send({"id": first["id"], "fence": first["fence"], "success": True, "output": "late"})
    await come_about(lambda: app.results.get("late"), "the late result is counted")
    await other.complete(second, "right")
    assert await result_of(app, execution) == "right"
    await other.connection.close()


async def test_task_of_the_only_worker_is_found_when_its_connection_is_gone(
    app: BrokerApp, worker: ForeignWorker, rabbitmq_url: str
) -> None:
    execution, waiting = await app.begin(), await app.begin("b.png")
    first = await worker.take()
    await worker.die()
    await come_about(lambda: app.lost, "the loss is found")
    other = await ForeignWorker.connect(rabbitmq_url)
    fences = {}
    for _ in range(2):
        task = await other.take()
        fences[task["execution"]] = task["fence"]
        await other.complete(task, 1)
    lost = first["execution"]
    assert fences == {lost: 2, (waiting if lost == execution else execution): 1}
    for each in (execution, waiting):
        assert await ended(app, each) == "COMPLETED"
    assert app.lost == 1
    await other.connection.close()


async def test_five_losses_fail_the_task(app: BrokerApp, rabbitmq_url: str) -> None:
    execution = await app.begin()
    for losses in range(5):
        worker = await ForeignWorker.connect(rabbitmq_url)
        await worker.take()
        await come_about(lambda: app.distribution.carriers[0].workers, "the worker is seen")
        await worker.die()
        await come_about(lambda losses=losses: app.lost > losses, "the loss is counted")
    assert await ended(app, execution) == "FAILED"
    view = await app.client.stack.archive.execution(execution)
    assert view is not None
    assert "WORKER_LOST" in str(view.error)


async def test_loss_that_the_store_does_not_take_is_found_again(
    app: BrokerApp, worker: ForeignWorker, rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy of the dead worker is removed only after its loss is committed."""
    (leases,) = [carrier.leases for carrier in app.distribution.carriers]
    hand_back, refused = leases.hand_back, []

    async def refuse_once(*given: Any, **options: Any) -> None:
        if not refused:
            refused.append(given)
            raise Unavailable("the store is away")
        await hand_back(*given, **options)

    execution = await app.begin()
    await worker.take()
    await come_about(lambda: app.distribution.carriers[0].workers, "the worker is seen")
    monkeypatch.setattr(leases, "hand_back", refuse_once)
    await worker.die()
    await come_about(lambda: app.lost == 1, "the loss is counted")
    assert len(refused) == 1
    again = await ForeignWorker.connect(rabbitmq_url)
    await again.complete(await again.take(), "small")
    assert await result_of(app, execution) == "small"
    await again.connection.close()


async def test_second_result_changes_nothing(app: BrokerApp, worker: ForeignWorker) -> None:
    execution = await app.begin()
    task = await worker.take()
    await worker.complete(task, "first")
    await worker.send({"id": task["id"], "fence": task["fence"], "success": True, "output": "second"})
    assert await result_of(app, execution) == "first"
    await come_about(lambda: app.results.get("late"), "the second result is counted")

    async def empty() -> bool:
        return await worker.depth("workflow.results") == 0

    await come_about(empty, "both are acknowledged")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"no json", "BAD_RESULT"),
        (b'{"id": "no.thing", "fence": 1, "success": true}', "UNKNOWN_TASK"),
        (b'{"id": "no.thing", "fence": "x", "success": true}', "BAD_RESULT"),
    ],
)
async def test_result_that_names_nothing_is_a_dead_letter(
    app: BrokerApp, worker: ForeignWorker, body: bytes, code: str
) -> None:
    await worker.send(body)

    async def dead() -> bool:
        return await worker.depth(DEAD) == 1

    await come_about(dead, "a dead letter lies there")
    letter = await worker.channel.get(DEAD)
    assert letter is not None
    headers = letter.properties.headers or {}
    assert (letter.body, headers[CODE]) == (body, code)
    assert headers[REASON]
    assert letter.properties.message_id == "result-1"
    execution = await app.begin()
    await worker.complete(await worker.take(), 1)
    assert await ended(app, execution) == "COMPLETED"


async def test_older_form_is_taken_if_one_task_of_the_node_is_handed_out(
    app: BrokerApp, worker: ForeignWorker
) -> None:
    execution = await app.begin()
    task = await worker.take()
    old = {"workflow_execution_id": execution, "node_id": task["node"], "success": True, "output": 7}
    await worker.send({**old, "error": None})
    assert await result_of(app, execution) == 7


async def test_health_workers_and_metrics_show_workers_of_other_programs_and_their_deaths(
    rabbitmq_url: str, worker: ForeignWorker
) -> None:
    app = rabbit_app("memory:", rabbitmq_url)
    async with app.served() as http:
        execution = await app.begin()
        first = await worker.take()
        await come_about(lambda: foreign_workers(http), "the worker is listed")
        (found,) = await foreign_workers(http)
        assert (found["via"], found["state"], found["queues"]) == ("RabbitMQ", "alive", ["images"])
        detail = (await health(http))["workers of other programs"]["detail"]
        assert detail == "1 alive (images-consumer-1)"
        metrics = (await http.get("/metrics")).text
        labels = 'kind="tasks",place="tasks.images",server="RabbitMQ"'
        assert f"dalsegno_broker_messages{{{labels}}} 0.0" in metrics

        await worker.die()
        other = await ForeignWorker.connect(rabbitmq_url)
        again = await other.take()
        assert again["id"] == first["id"]
        assert "1 tasks handed out again" in (await health(http))["workers of other programs"]["detail"]
        assert "dalsegno_tasks_lost_total 1.0" in (await http.get("/metrics")).text
        await other.complete(again, "small")
        assert await result_of(app, execution) == "small"
        await other.connection.close()


@pytest.mark.chaos
async def test_broker_killed_and_restarted_loses_no_execution(
    rabbitmq_factory: Callable[..., RabbitServer],
) -> None:
    server = rabbitmq_factory()
    async with rabbit_app("memory:", server.url).deployed() as app:
        worker = await ForeignWorker.connect(server.url)
        executions = [await app.begin(f"{number}.png") for number in range(3)]
        task = await worker.take()
        await worker.complete(task, 1)
        assert await ended(app, task["execution"]) == "COMPLETED"
        await worker.take()
        await asyncio.to_thread(server.kill)
        await worker.connection.closed()
        await asyncio.to_thread(server.start)
        other = await ForeignWorker.connect(server.url)
        for _ in range(2):
            await other.complete(await other.take(), 1)
        for execution in executions:
            assert await ended(app, execution) == "COMPLETED"
        await other.connection.close()


async def test_emptied_broker_costs_a_run_and_no_execution(
    app: BrokerApp, worker: ForeignWorker, rabbitmq_url: str
) -> None:
    execution = await app.begin()
    old = await worker.take()
    for queue in ("workflow.results.marker", "workflow.results", TASKS):
        await worker.channel.call(frames.QUEUE_DELETE, queue=queue)
    again = await ForeignWorker.connect(rabbitmq_url)
    task = await again.take()
    assert (task["id"], task["fence"] > old["fence"]) == (old["id"], True)
    await again.complete(task, 1)
    assert await ended(app, execution) == "COMPLETED"
    await again.connection.close()
