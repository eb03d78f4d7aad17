"""Processes on PostgreSQL and Redis, as they are deployed: Redis is emptied, killed and started under load."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import redis

from dalsegno import App
from tests.cli.documents import write
from tests.cli.programs import Program, Programs
from tests.servers.process import free_port
from tests.servers.redis import RedisServer
from tests.waiting import come_about, until

STEPS = """\
name: steps
nodes:
  - {id: a, type: log, parameters: {message: one}}
  - {id: pause, type: wait, parameters: {amount: 1, unit: seconds}}
  - {id: b, type: log, parameters: {message: two}}
edges:
  - {src: a, dst: pause}
  - {src: pause, dst: b}
"""
EXECUTIONS = 120


def test_executions_end_once_while_redis_is_emptied_killed_and_away(
    programs: Programs,
    folder: Path,
    empty_postgres: Callable[[], str],
    redis_factory: Callable[..., RedisServer],
) -> None:
    server = redis_factory(appendonly=False)
    write(folder, steps_yaml=STEPS)
    store, port = empty_postgres(), free_port()
    places = ("--store", store, "--broker", server.url)
    running = [
        programs.begin("worker", *places),
        programs.begin("worker", *places),
        programs.begin("scheduler", *places),
        programs.begin("server", "--no-worker", "--no-scheduler", "--port", str(port), *places),
    ]
    for program in running:
        program.logged_up_to(f"Redis: {server.url}")
    with redis.from_url(server.url) as client:
        until(lambda: len(client.keys("worker:*")) == 2, "the workers are shown to other programs")
        [fields] = [client.hgetall(key) for key in client.keys("worker:*")][:1]
        assert b"default" in fields[b"queues"].split(b",")
        assert int(fields[b"concurrency"]) == 100
        assert 0 < client.ttl(client.keys("worker:*")[0]) <= 15

    ended = asyncio.run(run_under_faults(store, server))

    assert ended == Counter(COMPLETED=EXECUTIONS)
    assert httpx.get(f"http://127.0.0.1:{port}/v1/health/ready").json()["detail"] is None
    for program in running:
        stop(program)


async def run_under_faults(store: str, server: RedisServer) -> Counter[str]:
    """Start executions here, where no worker runs, and return in which states they ended."""
    async with App(store, broker=server.url).running(worker=False, scheduler=False) as app:
        await app.adeploy(STEPS)
        handles = []
        for number in range(EXECUTIONS):
            handles.append(await app.astart("steps"))
            match number:
                case 20 | 40:
                    server.flush()
                case 60:
                    server.kill()
                case 90:
                    server.start()
                    await come_about(app.engine.stack.servers[0].connected, "Redis is back")
        async with asyncio.timeout(60):
            await asyncio.gather(*(handle.aresult() for handle in handles))
        found = [await app.client.status(handle.id) for handle in handles]
        histories = [await app.client.stack.archive.events(handle.id) for handle in handles]
        assert all([event.kind for event in each].count("ExecutionCompleted") == 1 for each in histories)
        return Counter(view.state for view in found)


def stop(program: Program) -> None:
    program.send(signal.SIGTERM)
    code, _, errors = program.finish()
    assert code == 0, errors
