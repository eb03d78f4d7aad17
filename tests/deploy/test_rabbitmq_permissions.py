"""The users that the script makes can do what their role needs, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dalsegno.adapters.rabbitmq.amqp.address import parse_address
from dalsegno.adapters.rabbitmq.amqp.channel import Channel
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.amqp.errors import ACCESS_REFUSED, ChannelClosed
from dalsegno.adapters.rabbitmq.amqp.frames import Properties
from dalsegno.adapters.rabbitmq.topology import Topology
from tests.servers import RabbitServer

SCRIPT = Path(__file__).parents[2] / "deploy" / "rabbitmq" / "permissions.sh"
PASSWORDS = {"ENGINE_PASSWORD": "e1", "MASTER_PASSWORD": "m1", "TASKS_PASSWORD": "t1"}
VHOST = "roles"
RECORDER = """#!/usr/bin/env python3
import json, os, sys
with open(os.environ["CALLS"], "a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
"""


@pytest.fixture
def server(rabbitmq_server: RabbitServer, tmp_path: Path) -> Iterator[RabbitServer]:
    """A server on which the commands of the script were carried out: rabbitmqctl itself takes a second for each."""
    rabbitmq_server.start()
    recorder, calls = tmp_path / "rabbitmqctl", tmp_path / "calls"
    recorder.write_text(RECORDER)
    recorder.chmod(recorder.stat().st_mode | stat.S_IXUSR)
    environment = {**os.environ, **PASSWORDS, "RABBITMQCTL": str(recorder), "CALLS": str(calls)}
    subprocess.run([SCRIPT, VHOST], env=environment, check=True)
    for line in calls.read_text().splitlines():
        carry_out(rabbitmq_server, json.loads(line))
    yield rabbitmq_server
    if rabbitmq_server.running:
        rabbitmq_server.delete_vhost(VHOST)


def carry_out(server: RabbitServer, command: list[str]) -> None:
    quoted = ", ".join("<<" + json.dumps(each) + ">>" for each in command[2:] if each != "-p")
    match command[1]:
        case "add_vhost":
            server.create_vhost(command[2])
        case "add_user":
            server.evaluate(f'rabbit_auth_backend_internal:add_user({quoted}, <<"tests">>)')
        case "set_permissions" | "set_topic_permissions" as name:
            vhost, user, *rest = (f"<<{json.dumps(each)}>>" for each in command[3:])
            server.evaluate(
                f'rabbit_auth_backend_internal:{name}({user}, {vhost}, {", ".join(rest)}, <<"tests">>)'
            )
        case other:
            raise AssertionError(f"the script calls {other}")


@asynccontextmanager
async def connected(server: RabbitServer, user: str, password: str) -> AsyncIterator[Connection]:
    connection = await Connection.open(parse_address(server.url_of(VHOST, user=user, password=password)))
    yield connection
    await connection.close()


async def publish(channel: Channel, exchange: str, key: str) -> str:
    done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    channel.publish(exchange, key, Properties(message_id="m"), b"{}", done.set_result)
    return await asyncio.wait_for(done, 20)


async def may_read(connection: Connection, queue: str) -> bool:
    channel = await connection.channel()
    try:
        await channel.get(queue)
    except ChannelClosed as error:
        return error.reply_code != ACCESS_REFUSED
    return True


async def may_publish(connection: Connection, exchange: str, key: str) -> bool:
    channel = await connection.channel()
    await channel.confirm()
    outcome = await publish(channel, exchange, key)
    assert outcome == "confirmed" or channel.closed is not None
    return outcome == "confirmed"


async def test_each_role_has_its_rights_and_no_more(server: RabbitServer) -> None:
    async with connected(server, "engine", "e1") as engine:
        topology = Topology()
        await topology.declare(engine)
        await topology.declare_execution_queues(await engine.channel(), ["gpu"])
        assert await topology.differences(engine) == []
        assert await may_read(engine, "workflow.execution")
        assert await may_read(engine, "workflow.execution.dead")
        assert not await may_read(engine, "workflow.completion")
        assert await may_publish(engine, "workflows", "workflow.node.status")
        assert await may_publish(engine, "", "workflow.execution.retry.5s")
    async with connected(server, "master", "m1") as master:
        assert await may_publish(master, "workflows", "workflow.execution")
        assert not await may_publish(master, "workflows", "workflow.completion")
        assert not await may_publish(master, "", "workflow.execution.dead")
        assert await may_read(master, "workflow.node.status")
        assert await may_read(master, "workflow.completion")
        assert not await may_read(master, "workflow.execution")
        with pytest.raises(ChannelClosed):
            await (await master.channel()).declare_queue("workflow.mine")
    async with connected(server, "tasks", "t1") as tasks:
        assert not await may_publish(tasks, "workflows", "workflow.execution")
        assert not await may_read(tasks, "workflow.completion")
