"""Tasks of a queue that workers on RabbitMQ and on Redis serve, while one of the brokers is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from dalsegno.adapters.rabbitmq import open_broker
from dalsegno.adapters.redis import open_redis
from dalsegno.adapters.redis.address import close_client
from dalsegno.engine.settings import REMOTE_VARIABLE
from dalsegno.ports.stack import Stack
from tests.adapters.broker_app import BrokerApp, ended, result_of
from tests.adapters.rabbitmq.foreign_worker import ForeignWorker as RabbitWorker
from tests.adapters.redis.foreign_worker import ForeignWorker as RedisWorker
from tests.servers.rabbitmq import RabbitServer
from tests.waiting import come_about


@pytest.fixture
async def redis_worker(redis_url: str) -> AsyncIterator[RedisWorker]:
    client = Redis.from_url(redis_url, protocol=2)
    yield RedisWorker(client)
    await close_client(client)


@pytest.fixture
async def app(
    private_rabbitmq: RabbitServer, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[BrokerApp]:
    monkeypatch.setenv(REMOTE_VARIABLE, "images")

    async def add(stack: Stack) -> Stack:
        return await open_broker(private_rabbitmq.url, await open_redis(redis_url, stack, is_broker=False))

    async with BrokerApp("memory:", add).deployed() as app:
        yield app


async def test_tasks_of_a_broker_that_is_gone_go_to_workers_of_the_other(
    app: BrokerApp, private_rabbitmq: RabbitServer, redis_worker: RedisWorker
) -> None:
    await redis_worker.live()
    rabbit_worker = await RabbitWorker.connect(private_rabbitmq.url, prefetch=2)
    held = await app.begin("held.png")
    first = await rabbit_worker.take()
    await asyncio.to_thread(private_rabbitmq.kill)
    later = await app.begin("later.png")

    tasks = {}
    while len(tasks) < 2:
        task = await redis_worker.take()
        tasks[task["execution"]] = task
    assert set(tasks) == {held, later}
    assert tasks[held]["fence"] > first["fence"]
    for execution, task in tasks.items():
        await redis_worker.complete(task, "small")
        assert await result_of(app, execution) == "small"
    assert app.lost == 0

    await asyncio.to_thread(private_rabbitmq.start)
    again = await RabbitWorker.connect(private_rabbitmq.url)
    execution = await app.begin("again.png")
    await again.complete(await again.take())
    assert await ended(app, execution) == "COMPLETED"
    await again.connection.close()


async def test_tasks_stay_where_they_are_while_no_other_broker_has_a_worker(
    app: BrokerApp, private_rabbitmq: RabbitServer
) -> None:
    worker = await RabbitWorker.connect(private_rabbitmq.url)
    execution = await app.begin()
    task = await worker.take()
    await asyncio.to_thread(private_rabbitmq.kill)
    (rabbitmq, _) = app.distribution.carriers
    await come_about(lambda: rabbitmq.is_away, "RabbitMQ counts as away")
    await asyncio.sleep(0.5)  # several looks
    assert app.lost == 0
    await asyncio.to_thread(private_rabbitmq.start)
    again = await RabbitWorker.connect(private_rabbitmq.url)
    await again.send({"id": task["id"], "fence": task["fence"], "success": True, "output": "small"})
    taking_over = asyncio.create_task(_take_over(again))
    assert await result_of(app, execution) == "small"
    assert app.lost <= 1
    taking_over.cancel()
    await again.connection.close()


async def _take_over(worker: RabbitWorker) -> None:
    """Run the task again: before this worker was there, the copy that came back may have counted as lost."""
    await worker.complete(await worker.take(), "small")
