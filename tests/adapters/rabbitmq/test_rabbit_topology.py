"""The exchanges and queues: declared by everybody, and differences named one by one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dalsegno.adapters.rabbitmq import topology
from dalsegno.adapters.rabbitmq.amqp import frames
from dalsegno.adapters.rabbitmq.amqp.address import parse_address
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.topology import Difference, Topology, TopologyDiffers


@pytest.fixture
async def connection(rabbitmq_url: str) -> AsyncIterator[Connection]:
    opened = await Connection.open(parse_address(rabbitmq_url))
    yield opened
    await opened.close()


async def test_everything_is_declared_as_the_wire_says_and_again(connection: Connection) -> None:
    declared = Topology()
    channel = await connection.channel()
    await declared.declare(connection)
    await declared.declare_execution_queues(channel, ["default", "gpu"])
    await declared.declare(connection)
    assert await declared.differences(connection) == []
    assert await declared.missing(connection) == []
    assert {queue.name: (queue.arguments, queue.durable) for queue in declared.queues()} == {
        "workflow.execution": (
            {
                "x-message-ttl": 86_400_000,
                "x-max-priority": 10,
                "x-dead-letter-exchange": "workflow.execution.dlx",
            },
            True,
        ),
        "workflow.execution.q.gpu": (
            {
                "x-message-ttl": 86_400_000,
                "x-max-priority": 10,
                "x-dead-letter-exchange": "workflow.execution.dlx",
            },
            True,
        ),
        "workflow.node.status": ({"x-message-ttl": 3_600_000, "x-max-priority": 10}, False),
        "workflow.completion": ({"x-message-ttl": 604_800_000, "x-max-priority": 10}, True),
        "workflow.execution.retry.5s": (
            {
                "x-message-ttl": 5_000,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": "workflow.execution",
            },
            True,
        ),
        "workflow.execution.retry.25s": (
            {
                "x-message-ttl": 25_000,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": "workflow.execution",
            },
            True,
        ),
        "workflow.execution.retry.125s": (
            {
                "x-message-ttl": 125_000,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": "workflow.execution",
            },
            True,
        ),
        "workflow.execution.dead": ({}, True),
        "workflow.timeout": (
            {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "workflow.timeout.process"},
            True,
        ),
        "workflow.timeout.process": ({"x-message-ttl": 86_400_000}, True),
    }


async def test_each_argument_that_differs_is_named_with_a_cure(connection: Connection) -> None:
    channel = await connection.channel()
    await channel.declare_queue("workflow.execution", arguments={"x-message-ttl": 1000, "x-max-length": 5})
    await channel.declare_queue("workflow.completion", durable=False, arguments={"x-max-priority": 10})
    with pytest.raises(TopologyDiffers) as raised:
        await Topology().declare(connection)
    assert set(raised.value.differences) == {
        Difference("workflow.execution", "x-message-ttl", "86400000", "1000"),
        Difference("workflow.execution", "x-max-priority", "10", "not set"),
        Difference("workflow.execution", "x-dead-letter-exchange", "'workflow.execution.dlx'", "not set"),
        Difference("workflow.execution", "x-max-length", "not set", "5"),
        Difference("workflow.completion", "durable", "true", "false"),
        Difference("workflow.completion", "x-message-ttl", "604800000", "not set"),
    }
    vhost = connection.address.vhost
    assert f"rabbitmqctl delete_queue -p {vhost} 'workflow.execution' --if-empty" in str(raised.value)
    assert "x-message-ttl of the queue 'workflow.execution' is 1000 instead of 86400000" in str(raised.value)


async def test_durable_queue_of_statuses_is_accepted_and_told(connection: Connection) -> None:
    channel = await connection.channel()
    arguments = {"x-message-ttl": topology.HOUR, "x-max-priority": 10}
    await channel.declare_queue(topology.NODE_STATUS, arguments=arguments)
    declared = Topology()
    await declared.declare(connection)
    assert "durable" in declared.status_is_durable
    assert await declared.missing(connection) == []
    assert await declared.differences(connection) == []


async def test_missing_queue_is_found(connection: Connection) -> None:
    declared = Topology()
    await declared.declare(connection)
    await (await connection.channel()).call(frames.QUEUE_DELETE, queue=topology.DEAD)
    assert await declared.missing(connection) == [topology.DEAD]
