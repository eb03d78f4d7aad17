"""Faults of tasks over Redis: a worker killed, Redis restarted, orchestrators that come and go, deadlines."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

import pytest
from redis.asyncio import Redis
from redis.exceptions import BusyLoadingError
from redis.exceptions import ConnectionError as RedisConnectionError

from dalsegno.adapters.redis.address import close_client
from tests.adapters.broker_app import GRAPH, ended
from tests.adapters.redis.foreign_worker import ForeignWorker, redis_app
from tests.servers.redis import RedisServer
from tests.waiting import come_about

T = TypeVar("T")
EXAMPLE = Path(__file__).parents[3] / "examples" / "broker_workers" / "redis_worker.py"


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(redis_url, protocol=2)
    yield client
    await close_client(client)


@pytest.fixture
def programs(redis_url: str) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Start the example worker, as often as wanted."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        program = subprocess.Popen([sys.executable, str(EXAMPLE), redis_url, "images"], env={**os.environ})
        started.append(program)
        return program

    yield start
    for program in started:
        program.kill()
        program.wait()


def test_example_worker_is_short_and_imports_nothing_of_ours() -> None:
    lines = EXAMPLE.read_text().splitlines()
    assert len(lines) <= 60
    assert not any("dalsegno" in line for line in lines if line.startswith(("import", "from")))


async def test_example_worker_runs_tasks_and_its_death_costs_a_loss(
    redis_url: str, redis: Redis, programs: Callable[[], subprocess.Popen[bytes]]
) -> None:
    app = redis_app("memory:", redis_url)
    async with app.running(worker=False):
        await app.adeploy(GRAPH)
        first = programs()
        assert await ended(app, await app.begin()) == "COMPLETED"
        (name,) = [key async for key in redis.scan_iter(match="worker:*")]

        await app.adeploy({**GRAPH, "nodes": [{**GRAPH["nodes"][0], "parameters": SLOW}]})
        execution = await app.begin()
        await come_about(lambda: _is_running(redis), "the worker runs it")
        first.send_signal(signal.SIGKILL)
        first.wait()
        await redis.delete(name)  # fifteen seconds later
        programs()
        assert await ended(app, execution) == "COMPLETED"
        assert await app.output(execution) == {"file": "a-small.png"}
        assert app.lost == 1
        await come_about(lambda: _is_empty(redis), "the stream is as short as the work in hand")


SLOW = {"task": "resize", "input": {"file": "{{ input.file }}", "tenths": 12}}


async def _is_running(redis: Redis) -> bool:
    if not await redis.exists("tasks:images"):
        return False
    return bool((await redis.xpending("tasks:images", "workers"))["pending"])


@pytest.mark.parametrize("appendonly", [True, False])
async def test_redis_killed_and_restarted_loses_no_execution(
    redis_factory: Callable[..., RedisServer], appendonly: bool
) -> None:
    server = redis_factory(appendonly=appendonly)
    app = redis_app("memory:", server.url)
    async with app.running(worker=False), AsyncExitStack() as stack:
        await app.adeploy(GRAPH)
        redis = Redis.from_url(server.url, protocol=2)
        stack.push_async_callback(close_client, redis)
        worker = ForeignWorker(redis)
        await worker.live()
        executions = [await app.begin(f"{number}.png") for number in range(3)]
        taken = await worker.take()
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        await _again(worker.live)
        if appendonly:
            await worker.complete(taken, 1)
        open_ = {each for each in executions if not (appendonly and each == taken["execution"])}
        while open_:
            task = await _again(worker.take)
            await worker.complete(task, 1)
            open_.discard(task["execution"])
        for execution in executions:
            assert await ended(app, execution) == "COMPLETED"
        assert app.lost == 0


async def _again(call: Callable[[], Awaitable[T]]) -> T:
    """Call until Redis answers."""
    while True:
        try:
            return await call()
        except (RedisConnectionError, BusyLoadingError):
            await asyncio.sleep(0.02)


async def test_two_orchestrators_hand_each_task_out_once_and_take_over_from_each_other(
    redis_url: str, redis: Redis, postgres_url: str
) -> None:
    first, second = redis_app(postgres_url, redis_url), redis_app(postgres_url, redis_url)
    worker = ForeignWorker(redis)
    await worker.live(concurrency=3)
    async with first.running(worker=False):
        await first.adeploy(GRAPH)
        async with second.running(worker=False):
            executions = [await second.begin(f"{number}.png") for number in range(8)]
            held = [await worker.take() for _ in range(4)]
            for task in held[:2]:
                await worker.complete(task, 1)
            await come_about(lambda: first.leads or second.leads, "one leads")
            assert not (first.leads and second.leads)
            (leader, other) = (first, second) if first.leads else (second, first)
            leader.fall_silent()
            await come_about(lambda: other.leads, "the other one leads")
            taken = [task["id"] for task in held]
            for task in held[2:]:
                await worker.complete(task, 1)
            for _ in range(4):
                task = await worker.take()
                taken.append(task["id"])
                await worker.complete(task, 1)
            for execution in executions:
                assert await ended(second, execution) == "COMPLETED"
            assert len(set(taken)) == len(taken) == 8
            assert first.lost + second.lost == 0
            assert await worker.take_now() is None


async def test_task_without_an_answer_fails_at_its_deadline(redis_url: str, redis: Redis) -> None:
    app = redis_app("memory:", redis_url)
    worker = ForeignWorker(redis)
    await worker.live()
    async with app.running(worker=False):
        await app.adeploy({**GRAPH, "nodes": [{**GRAPH["nodes"][0], "timeout": "1s"}]})
        execution = await app.begin()
        task = await worker.take()
        assert task["deadline"] is not None
        assert await ended(app, execution) == "FAILED"
        await worker.complete(task, 1)
        await come_about(lambda: app.results.get("late"), "the late result is counted")
        await come_about(lambda: _empty(worker), "nothing is left")


async def _empty(worker: ForeignWorker) -> bool:
    return await worker.copies() == 0 and await worker.results_left() == 0


async def _is_empty(redis: Redis) -> bool:
    return await redis.xlen("tasks:images") == 0
