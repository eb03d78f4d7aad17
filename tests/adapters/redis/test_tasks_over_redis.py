"""Tasks for workers of other programs over Redis: handed out, answered, lost, late, withdrawn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from dalsegno.adapters.redis.address import close_client
from dalsegno.engine.remote import foreign_results
from dalsegno.engine.worker.directory import list_workers
from dalsegno.errors import Unavailable
from tests.adapters.broker_app import BrokerApp, ended, foreign_workers, health, result_of
from tests.adapters.redis.foreign_worker import ForeignWorker, redis_app
from tests.waiting import come_about


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(redis_url, protocol=2)
    yield client
    await close_client(client)


@pytest.fixture
async def app(redis_url: str) -> AsyncIterator[BrokerApp]:
    async with redis_app("memory:", redis_url).deployed() as app:
        yield app


@pytest.fixture
async def worker(redis: Redis) -> ForeignWorker:
    worker = ForeignWorker(redis)
    await worker.live()
    return worker


async def test_task_is_handed_out_and_its_result_taken_in(app: BrokerApp, worker: ForeignWorker) -> None:
    execution = await app.begin()
    task = await worker.take()
    assert (task["name"], task["input"], task["queue"], task["execution"]) == (
        "resize",
        {"file": "a.png"},
        "images",
        execution,
    )
    assert (task["fence"], task["attempt"], task["heartbeat_seconds"] > 0) == (1, 1, True)
    await worker.complete(task, {"file": "a-small.png"})
    assert await result_of(app, execution) == {"file": "a-small.png"}
    await come_about(lambda: _gone(worker), "streams are as short as the work in hand")
    assert app.results == {"taken": 1}


async def _gone(worker: ForeignWorker) -> bool:
    return await worker.copies() == 0 and await worker.results_left() == 0


async def test_failed_result_fails_the_node(app: BrokerApp, worker: ForeignWorker) -> None:
    execution = await app.begin()
    task = await worker.take()
    error = json.dumps({"message": "disk full", "type": "OSError", "code": "DISK"})
    await worker.complete(task, success="false", error=error)
    assert await ended(app, execution) == "FAILED"
    view = await app.client.stack.archive.execution(execution)
    assert view is not None
    assert "disk full" in str(view.error)


async def test_copies_are_twice_the_concurrency_and_high_priority_is_read_first(
    app: BrokerApp, worker: ForeignWorker
) -> None:
    executions = [
        await app.begin(f"{number}.png", priority) for number, priority in enumerate((0, -3, 5, 0, 0, 0))
    ]
    await come_about(lambda: _has_copies(worker, 4), "four copies are out")
    await asyncio.sleep(0.4)
    assert await worker.copies() == 4
    priorities = []
    for _ in executions:
        task = await worker.take()
        priorities.append(executions.index(task["execution"]))
        await worker.complete(task)
    for execution in executions:
        assert await ended(app, execution) == "COMPLETED"
    assert priorities[0] == 2
    assert priorities[-1] == 1


async def _has_copies(worker: ForeignWorker, number: int) -> bool:
    return await worker.copies() == number


async def test_task_of_a_dead_worker_is_handed_out_with_the_next_fence(
    app: BrokerApp, worker: ForeignWorker, redis: Redis
) -> None:
    execution = await app.begin()
    first = await worker.take()
    await worker.die()
    other = ForeignWorker(redis, "w2")
    await other.live()
    second = await other.take()
    assert (second["id"], second["attempt"]) == (first["id"], 1)
    assert second["fence"] > first["fence"]
    assert app.lost == 1
    await worker.complete(first, "late")
    await come_about(lambda: app.results.get("late"), "the late result is counted")
    assert await app.state(execution) == "RUNNING"
    await other.complete(second, "right")
    assert await result_of(app, execution) == "right"
    await come_about(lambda: _gone(worker), "nothing is left")


async def test_five_losses_fail_the_task(app: BrokerApp, redis: Redis) -> None:
    execution = await app.begin()
    for number in range(5):
        worker = ForeignWorker(redis, f"w{number}")
        await worker.live()
        await worker.take()
        await worker.die()
    last = ForeignWorker(redis, "last")
    await last.live()
    assert await ended(app, execution) == "FAILED"
    view = await app.client.stack.archive.execution(execution)
    assert view is not None
    assert "WORKER_LOST" in str(view.error)
    assert app.lost == 5


async def test_second_result_changes_nothing(app: BrokerApp, worker: ForeignWorker) -> None:
    execution = await app.begin()
    task = await worker.take()
    await worker.complete(task, "first")
    await worker.complete(task, "second")
    assert await result_of(app, execution) == "first"
    await come_about(lambda: app.results.get("late") == 1, "the second one is counted")
    await come_about(lambda: _gone(worker), "both are acknowledged and removed")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"id": "nothing.at-all", "fence": "1", "success": "true"}, "UNKNOWN_TASK"),
        ({"id": "nothing", "fence": "1", "success": "true"}, "UNKNOWN_TASK"),
        ({"success": "true", "output": "1"}, "BAD_RESULT"),
        ({"id": "a.b", "fence": "one", "success": "true"}, "BAD_RESULT"),
        ({"id": "a.b", "fence": "1", "success": "yes"}, "BAD_RESULT"),
        ({"id": "a.b", "fence": "1", "success": "true", "output": "{"}, "BAD_RESULT"),
        ({"workflow_execution_id": "nothing", "node_id": "n", "success": "true"}, "UNKNOWN_TASK"),
    ],
)
async def test_result_that_names_nothing_is_a_dead_letter(
    app: BrokerApp, worker: ForeignWorker, redis: Redis, fields: dict[str, str], code: str
) -> None:
    await worker.send(fields)
    await come_about(lambda: redis.xlen("wf:stream:dead"), "a dead letter lies there")
    ((_, letter),) = await redis.xrange("wf:stream:dead")
    assert (letter[b"code"].decode(), letter[b"source"]) == (code, b"wf:stream:results")
    assert json.loads(letter[b"body"]) == fields
    assert letter[b"reason"]
    assert await worker.results_left() == 0
    execution = await app.begin()  # others go on
    await worker.complete(await worker.take(), 1)
    assert await ended(app, execution) == "COMPLETED"


async def test_result_that_cannot_be_taken_in_is_a_dead_letter_after_three_tries(
    app: BrokerApp, worker: ForeignWorker, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the store is away for longer than three tries, which are not counted."""
    faults = [Unavailable("no store") for _ in range(5)] + [RuntimeError("a bug") for _ in range(3)]
    left = list(faults)

    async def broken(*_: object) -> None:
        raise left.pop(0)

    monkeypatch.setattr(foreign_results, "PAUSE", 0.01)
    monkeypatch.setattr(app.distribution.carriers[0].answers, "settle", broken)
    await app.begin()
    await worker.complete(await worker.take(), 1)
    await come_about(lambda: redis.xlen("wf:stream:dead"), "a dead letter lies there")
    ((_, letter),) = await redis.xrange("wf:stream:dead")
    assert (letter[b"code"], letter[b"reason"]) == (b"INTERNAL", b"an internal error: a bug")
    assert left == []


async def test_older_form_is_taken_if_one_task_of_the_node_is_handed_out(
    app: BrokerApp, worker: ForeignWorker
) -> None:
    execution = await app.begin()
    task = await worker.take()
    await worker.send(
        {
            "workflow_execution_id": execution,
            "node_id": task["node"],
            "success": "true",
            "output": "7",
            "error": "",
        }
    )
    assert await result_of(app, execution) == 7


async def test_emptied_redis_costs_a_run_and_no_execution(
    app: BrokerApp, worker: ForeignWorker, redis: Redis
) -> None:
    execution, waiting = await app.begin(), await app.begin("b.png")
    old = await worker.take()
    await redis.flushall()
    await worker.live()
    tasks = {task["execution"]: task for task in (await worker.take(), await worker.take())}
    assert tasks.keys() == {execution, waiting}
    again = tasks[execution] if old["execution"] == execution else tasks[waiting]
    assert again["fence"] > old["fence"]
    for task in tasks.values():
        await worker.complete(task, 1)
    for each in (execution, waiting):
        assert await ended(app, each) == "COMPLETED"
    assert app.lost == 0


async def test_cancelled_task_is_withdrawn(app: BrokerApp, worker: ForeignWorker) -> None:
    execution, other = await app.begin(), await app.begin("b.png")
    await come_about(lambda: _has_copies(worker, 2), "both are out")
    await app.handle(execution).acancel()
    await come_about(lambda: _has_copies(worker, 1), "the copy is removed")
    task = await worker.take()
    assert task["execution"] == other


async def test_waiting_copies_come_back_when_no_worker_serves_the_queue(
    app: BrokerApp, worker: ForeignWorker
) -> None:
    await app.begin()
    await come_about(lambda: _has_copies(worker, 1), "it is out")
    await worker.die()
    await come_about(lambda: _has_copies(worker, 0), "it is taken back")
    await come_about(lambda: _ready(app), "it waits in the ledger again")
    assert app.lost == 0


async def _ready(app: BrokerApp) -> bool:
    return any(view.queue == "images" and view.ready for view in await app.client.stack.ledger.queues())


async def test_workers_of_other_programs_are_listed_with_what_they_run(
    app: BrokerApp, worker: ForeignWorker
) -> None:
    execution = await app.begin()
    await worker.take()

    async def shown() -> bool:
        workers = {each.name: each for each in await list_workers(app.client.stack.ledger)}
        found = workers.get("w1")
        return found is not None and [each.execution for each in found.running] == [execution]

    await come_about(shown, "the worker is listed")
    (found,) = await list_workers(app.client.stack.ledger)
    assert (found.kind, found.state, found.via, found.queues) == ("remote", "alive", "Redis", ("images",))
    assert (found.concurrency, found.leases) == (2, 1)


async def test_health_workers_and_why_show_workers_of_other_programs(
    redis_url: str, worker: ForeignWorker, redis: Redis
) -> None:
    app = redis_app("memory:", redis_url)
    async with app.served() as http:
        execution = await app.begin()
        await worker.take()

        async def runs() -> bool:
            return "worker w1 of another program runs it" in str(await app.handle(execution).awhy())

        await come_about(runs, "why names the worker")
        (found,) = await foreign_workers(http)
        assert (found["via"], found["leases"], found["running"][0]["node"]) == ("Redis", 1, "resize")
        assert (await health(http))["workers of other programs"]["detail"] == "1 alive (w1)"

        await worker.die()
        other = ForeignWorker(redis, "w2")
        await other.live()
        again = await other.take()
        assert "1 tasks handed out again" in (await health(http))["workers of other programs"]["detail"]
        assert "dalsegno_tasks_lost_total 1.0" in (await http.get("/metrics")).text
        await other.complete(again)
        await other.complete(again)
        assert await ended(app, execution) == "COMPLETED"
        await come_about(lambda: app.results.get("late"), "the second result is counted")
        metrics = (await http.get("/metrics")).text
        assert 'dalsegno_task_results_total{broker="Redis",verdict="late"} 1.0' in metrics
