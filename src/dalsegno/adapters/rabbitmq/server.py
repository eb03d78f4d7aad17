"""RabbitServer: RabbitMQ as ``doctor``, health and metrics see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.amqp.errors import NOT_FOUND, ChannelClosed
from dalsegno.adapters.rabbitmq.broker import RabbitBroker
from dalsegno.adapters.rabbitmq.topology import COMPLETION, DEAD, EXECUTION, LADDER, NODE_STATUS


class RabbitServer:
    name = "RabbitMQ"

    def __init__(self, broker: RabbitBroker) -> None:
        self.broker = broker
        self.url = broker.sender.link.address.shown

    def connected(self) -> bool:
        return self.broker.sender.link.is_ready

    def problem(self) -> str:
        return self.broker.sender.problem()

    async def examine(self) -> Sequence[str]:
        """Return what is wrong with the connection, and every argument in which a queue differs."""
        sender = self.broker.sender
        connection = sender.link.connection
        found = [problem] if (problem := sender.problem()) else []
        if connection is None:
            return found
        topology = sender.topology
        found += [str(difference) for difference in await topology.differences(connection)]
        found += [f"the queue '{queue}' is missing" for queue in await topology.missing(connection)]
        if topology.status_is_durable:
            found.append(topology.status_is_durable)
        depth = await _depth(connection, DEAD)
        if depth:
            found.append(f"{depth} dead letters wait: dalsegno dead ls")
        return found

    async def measure(self) -> Mapping[str, float]:
        sender, receiver, foreign = self.broker.sender, self.broker.receiver, self.broker.foreign
        figures: dict[str, float] = {
            "connected": float(sender.link.is_ready),
            "connections": float(sender.link.connections),
            "unconfirmed": float(sender.unconfirmed),
            "confirmed": float(sender.confirmed),
            "not_confirmed": float(sender.failed),
            "delivered": float(receiver.delivered),
            "duplicates": float(self.broker.duplicates),
            "dead_lettered": float(foreign.dead),
            "retried": float(foreign.retried),
        }
        connection = sender.link.connection
        if connection is not None:
            queues = [EXECUTION, *sender.topology.execution_queues(), NODE_STATUS, COMPLETION, DEAD]
            for queue in [*queues, *(name for name, _ in LADDER)]:
                figures[f"depth:{queue}"] = float(await _depth(connection, queue))
        return figures


async def _depth(connection: Connection, queue: str) -> int:
    channel = await connection.channel()
    try:
        depth, _ = await channel.depth(queue)
    except ChannelClosed as error:
        if error.reply_code == NOT_FOUND:
            return 0
        raise
    await channel.close()
    return depth
