"""RabbitServer: RabbitMQ as ``doctor``, health and metrics see it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.amqp.errors import NOT_FOUND, ChannelClosed
from dalsegno.adapters.rabbitmq.broker import RabbitBroker
from dalsegno.adapters.rabbitmq.tasks import RESULTS, RabbitTasks
from dalsegno.adapters.rabbitmq.topology import COMPLETION, DEAD, EXECUTION, LADDER, NODE_STATUS
from dalsegno.ports.stack import Backlog, Kind, Measured


class RabbitServer:
    name = "RabbitMQ"

    def __init__(self, broker: RabbitBroker, tasks: RabbitTasks) -> None:
        self.broker = broker
        self.tasks = tasks
        self.url = broker.sender.link.address.shown
        self._filled: dict[str, float] = {}
        """Since when each queue has not been found empty."""

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
        found += filter(None, [sender.link.address.risk()])
        topology = sender.topology
        found += [str(difference) for difference in await topology.differences(connection)]
        found += [f"the queue '{queue}' is missing" for queue in await topology.missing(connection)]
        if topology.status_is_durable:
            found.append(topology.status_is_durable)
        depth = await _depth(connection, DEAD)
        if depth:
            found.append(f"{depth} dead letters wait: dalsegno dead ls")
        return found

    async def measure(self) -> Measured:
        sender, foreign = self.broker.sender, self.broker.foreign
        figures = {
            "connections": float(sender.link.connections),
            "confirmed": float(sender.confirmed),
            "not_confirmed": float(sender.failed),
            "delivered": float(self.broker.delivered),
            "duplicates": float(self.broker.duplicates),
            "dead_lettered": float(foreign.dead),
            "retried": float(foreign.retried),
        }
        connection = sender.link.connection
        if connection is None:
            return Measured((), figures, sender.unconfirmed)
        backlogs = [
            self._backlog(queue, kind, await _depth(connection, queue)) for queue, kind in self._places()
        ]
        return Measured(backlogs, figures, sender.unconfirmed)

    def _places(self) -> list[tuple[str, Kind]]:
        places: list[tuple[str, Kind]] = [
            (EXECUTION, "messages"),
            (NODE_STATUS, "statuses"),
            (COMPLETION, "completions"),
            (RESULTS, "results"),
            (DEAD, "dead"),
        ]
        places += [(name, "messages") for name in self.broker.sender.topology.execution_queues()]
        places += [(name, "retries") for name, _ in LADDER]
        return places + [(name, "tasks") for name in self.tasks.queues()]

    def _backlog(self, queue: str, kind: Kind, depth: int) -> Backlog:
        now = time.monotonic()
        if not depth:
            self._filled.pop(queue, None)
            return Backlog(queue, kind, 0)
        return Backlog(queue, kind, depth, now - self._filled.setdefault(queue, now))


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
