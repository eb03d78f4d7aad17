"""The users that the scripts for Redis and RabbitMQ make: each may do its work and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest
import redis

from dalsegno.adapters.rabbitmq.amqp.address import parse_address
from dalsegno.adapters.rabbitmq.amqp.channel import Channel, Message, Outcome
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.amqp.errors import ChannelClosed
from dalsegno.adapters.rabbitmq.amqp.frames import PERSISTENT, Properties
from dalsegno.adapters.rabbitmq.topology import Topology
from dalsegno.engine.settings import REMOTE_VARIABLE
from tests.adapters.rabbitmq.foreign_worker import rabbit_app
from tests.adapters.redis.foreign_worker import redis_app
from tests.deploy.files import DEPLOY, ROOT
from tests.servers import RabbitServer, RedisServer
from tests.servers.process import HOST
from tests.waiting import come_about

CREATED = re.compile(r"^created user (\S+) with the password (\S+)$", re.MULTILINE)
ROLES = ("dalsegno", "dalsegno-master", "dalsegno-task-worker")


def run(script: Path, *arguments: str, **environment: str) -> dict[str, str]:
    """The passwords that it printed."""
    done = subprocess.run(
        [str(script), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(CREATED.findall(done.stdout))


# -- Redis ----------------------------------------------------------------------------------------------------


def test_users_of_redis_may_do_their_work_only(redis_factory: Callable[..., RedisServer]) -> None:
    server = redis_factory()
    script = DEPLOY / "redis" / "permissions.sh"
    passwords = run(script, "-p", str(server.port), TASK_QUEUES="mail mail:*")
    assert tuple(passwords) == ROLES
    assert run(script, "-p", str(server.port), TASK_QUEUES="mail mail:*") == {}  # they keep their passwords
    engine, master, worker = (
        redis.Redis(HOST, server.port, username=name, password=password)
        for name, password in passwords.items()
    )

    master.hset("scheduler:payloads", "t", "{}")
    master.zadd("scheduler:timers", {"t": 1})
    assert engine.zrange("scheduler:timers", 0, -1) == [b"t"]
    engine.xadd("tasks:mail", {"task": "{}"})
    engine.xadd("tasks:secret", {"task": "{}"})
    engine.publish("wf:messages", "x")
    worker.xgroup_create("tasks:mail", "workers", "0")
    assert worker.xreadgroup("workers", "w", {"tasks:mail": ">"})
    worker.xadd("wf:stream:results", {"id": "1"})
    worker.hset("worker:w", "queues", "mail")
    worker.expire("worker:w", 15)

    for refused in (
        lambda: engine.set("other", 1),
        engine.flushall,
        lambda: engine.config_get("*"),
        lambda: master.xadd("wf:stream:results", {"id": "1"}),
        lambda: master.hgetall("worker:w"),
        lambda: worker.zadd("scheduler:timers", {"t": 1}),
        lambda: worker.xreadgroup("workers", "w", {"tasks:secret": ">"}),
        lambda: worker.publish("wf:messages", "x"),
    ):
        with pytest.raises(redis.exceptions.NoPermissionError):
            refused()


async def test_stack_works_with_its_user_of_redis_and_the_example_with_its(
    redis_factory: Callable[..., RedisServer],
) -> None:
    server = redis_factory()
    passwords = await asyncio.to_thread(run, DEPLOY / "redis" / "permissions.sh", "-p", str(server.port))
    engine, master, worker = (server.url_of(f"{name}:{password}") for name, password in passwords.items())
    async with redis_app("memory:", engine).served() as http:
        with example("redis_worker.py", worker):
            await runs_to_its_end(http)
        definition = {"name": "thumbnails", "version": 1}
        message = {
            "workflow_id": "w",
            "execution_id": "planted",
            "current_node": "resize",
            "workflow_definition": definition,
        }
        timers = redis.Redis.from_url(master)
        timers.hset("scheduler:payloads", "t", json.dumps(message))
        timers.zadd("scheduler:timers", {"t": 1})
        await come_about(lambda: is_there(http, "planted"), "the planted timer starts an execution")
        await http.get("/metrics")
        await http.get("/v1/health")
    assert server.ask("ACL LOG") == "*0", "nothing was refused"


# -- RabbitMQ -------------------------------------------------------------------------------------------------


async def test_users_of_rabbitmq_may_do_their_work_only(
    private_rabbitmq: RabbitServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    passwords = await asyncio.to_thread(
        run,
        DEPLOY / "rabbitmq" / "permissions.sh",
        CTL=str(private_rabbitmq.control_script()),
        TASK_QUEUES="(mail|images)",
    )
    assert tuple(passwords) == ROLES

    @asynccontextmanager
    async def channel_of(role: str) -> AsyncIterator[tuple[Connection, Channel]]:
        url = private_rabbitmq.url_of("/", user=role, password=passwords[role])
        connection = await Connection.open(parse_address(url))
        channel = await connection.channel()
        await channel.confirm()
        yield connection, channel
        await connection.close()

    monkeypatch.setenv(REMOTE_VARIABLE, "images")
    engine_url, _, worker_url = (
        private_rabbitmq.url_of("/", user=role, password=passwords[role]) for role in ROLES
    )
    async with rabbit_app("memory:", engine_url).served() as http:
        with example("rabbitmq_worker.py", worker_url):
            execution = await runs_to_its_end(http)
        metrics = (await http.get("/metrics")).text
        assert (
            'dalsegno_broker_messages{kind="completions",place="workflow.completion",server="RabbitMQ"}'
            in metrics
        )
    assert not [each.getMessage() for each in caplog.records if each.levelname in ("WARNING", "ERROR")]

    async with channel_of(ROLES[0]) as (connection, engine):
        await Topology().declare(connection)
        for queue in ("tasks.mail", "tasks.secret", "workflow.results"):
            await engine.declare_queue(queue)
            await engine.bind(queue, "workflows", queue)
        assert await published(engine, "workflow.execution") == "confirmed"
        assert await engine.get("workflow.execution") is not None
        assert await engine.get("workflow.execution.dead") is None
        assert await refused_read(connection, "workflow.completion") == "queue"
        with pytest.raises(ChannelClosed, match="access to queue 'other'"):
            await engine.declare_queue("other")

    async with channel_of(ROLES[1]) as (connection, master):
        assert await published(master, "workflow.execution") == "confirmed"
        completions: asyncio.Queue[Message] = asyncio.Queue()
        await master.consume("workflow.completion", "c", completions.put_nowait)
        completion = json.loads((await asyncio.wait_for(completions.get(), 20)).body)
        assert (completion["execution_id"], completion["status"]) == (execution, "completed")
        await master.consume("workflow.node.status", "s", lambda message: None)
        for attempt in ("workflow.results", "tasks.mail"):
            assert await refused_publish(connection, attempt) == "topic"
        assert await refused_publish(connection, "tasks.mail", "") == "exchange"
        assert await refused_read(connection, "workflow.execution") == "queue"

    async with channel_of(ROLES[2]) as (connection, worker):
        assert await published(worker, "workflow.results") == "confirmed"
        await worker.consume("tasks.mail", "m", lambda message: None)
        assert await refused_publish(connection, "workflow.execution") == "topic"
        for queue in ("tasks.secret", "workflow.completion", "workflow.execution"):
            assert await refused_read(connection, queue) == "queue"


async def published(channel: Channel, key: str, exchange: str = "workflows") -> Outcome:
    done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    properties = Properties(message_id="m", delivery_mode=PERSISTENT)
    channel.publish(exchange, key, properties, b"{}", done.set_result)
    return await asyncio.wait_for(done, 20)


async def refused_publish(connection: Connection, key: str, exchange: str = "workflows") -> str:
    channel = await connection.channel()
    await channel.confirm()
    assert await published(channel, key, exchange) == "lost"
    return refused_access(channel)


async def refused_read(connection: Connection, queue: str) -> str:
    channel = await connection.channel()
    with pytest.raises(ChannelClosed):
        await channel.consume(queue, "t", lambda message: None)
    return refused_access(channel)


def refused_access(channel: Channel) -> str:
    """What the server did not let it reach when it closed the channel."""
    found = re.search(r"access to (\w+)", str(channel.closed))
    assert found, channel.closed
    return found[1]


# -- both -----------------------------------------------------------------------------------------------------


@contextmanager
def example(name: str, url: str) -> Iterator[None]:
    words = [sys.executable, str(ROOT / "examples" / "broker_workers" / name), url, "images"]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


async def runs_to_its_end(http: httpx.AsyncClient) -> str:
    started = await http.post("/v1/executions", json={"workflow": "thumbnails", "input": {"file": "a.png"}})
    execution: str = started.json()["id"]

    async def ended() -> bool:
        return (await http.get(f"/v1/executions/{execution}")).json()["state"] == "COMPLETED"

    await come_about(ended, "the example worker answers", 30.0)
    return execution


async def is_there(http: httpx.AsyncClient, execution: str) -> bool:
    return (await http.get(f"/v1/executions/{execution}")).status_code == 200
