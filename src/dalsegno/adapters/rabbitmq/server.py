"""RabbitServer: RabbitMQ as ``doctor``, health and metrics see it.

RabbitMQ does not tell how old a message is unless it is consumed. The ledger knows since when the steps are ready whose
messages wait in a queue; of other queues the age is not known.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.amqp.errors import NOT_FOUND, ChannelClosed
from dalsegno.adapters.rabbitmq.broker import RabbitBroker
from dalsegno.adapters.rabbitmq.tasks import RESULTS, RabbitTasks
from dalsegno.adapters.rabbitmq.topology import (
    COMPLETION,
    DEAD,
    EXECUTION,
    LADDER,
    NODE_STATUS,
    execution_queue_name,
)
from dalsegno.errors import OperatorError
from dalsegno.ports.stack import Backlog, Kind, Measured

logger = logging.getLogger("dalsegno.rabbitmq")


class RabbitServer:
    name = "RabbitMQ"

    def __init__(self, broker: RabbitBroker, tasks: RabbitTasks) -> None:
        self.broker = broker
        self.tasks = tasks
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
        depths = [(queue, kind, await _depth(connection, queue)) for queue, kind in self._places()]
        ages = await self._ages() if any(depth for _, _, depth in depths) else {}
        backlogs = [
            Backlog(queue, kind, depth, ages.get(queue) if depth else 0.0) for queue, kind, depth in depths
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

    async def _ages(self) -> dict[str, float]:
        """Return for how long the oldest step has been ready that travels through each queue."""
        ledger = self.broker.ledger
        try:
            views = await ledger.queues()
        except OperatorError as error:
            logger.debug("the ages of messages are not known: %s", error)
            return {}
        now, ages = ledger.now(), dict[str, float]()
        for view in views:
            if view.oldest is not None:
                queue = execution_queue_name(view.queue)
                ages[queue] = max(now - view.oldest, ages.get(queue, 0.0))
        return ages


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
