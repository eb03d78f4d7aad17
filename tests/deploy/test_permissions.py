"""The users that the scripts for Redis and RabbitMQ make: each may do its work and nothing else."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis

from dalsegno.adapters.rabbitmq.amqp.address import parse_address
from dalsegno.adapters.rabbitmq.amqp.channel import Channel, Outcome
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.amqp.errors import ChannelClosed
from dalsegno.adapters.rabbitmq.amqp.frames import PERSISTENT, Properties
from dalsegno.adapters.rabbitmq.topology import Topology
from tests.deploy.files import DEPLOY
from tests.servers import RabbitServer, RedisServer
from tests.servers.process import HOST

CREATED = re.compile(r"^created user (\S+) with the password (\S+)$", re.MULTILINE)
ROLES = ("dalsegno", "dalsegno-master", "dalsegno-task-worker")


def run(script: Path, *arguments: str, **environment: str) -> dict[str, str]:
    """The passwords that it printed."""
    done = subprocess.run(
        [str(script), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
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


# -- RabbitMQ -------------------------------------------------------------------------------------------------


async def test_users_of_rabbitmq_may_do_their_work_only(private_rabbitmq: RabbitServer) -> None:
    passwords = await asyncio.to_thread(
        run,
        DEPLOY / "rabbitmq" / "permissions.sh",
        CTL=str(private_rabbitmq.control_script()),
        TASK_QUEUES="mail",
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
        await master.consume("workflow.completion", "c", lambda message: None)
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
