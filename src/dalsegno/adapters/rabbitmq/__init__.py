"""The broker on RabbitMQ: announcements, messages of other programs, statuses and completions. The ledger stays the
store's; RabbitMQ holds nothing that cannot be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dalsegno.adapters.rabbitmq.amqp.address import SCHEMES, Address, parse_address
from dalsegno.adapters.rabbitmq.announcements import HashesOf, KnownTokens
from dalsegno.adapters.rabbitmq.broker import RabbitBroker
from dalsegno.adapters.rabbitmq.dead_letters import RabbitDeadLetters
from dalsegno.adapters.rabbitmq.foreign_messages import ForeignMessages
from dalsegno.adapters.rabbitmq.receiver import Receiver
from dalsegno.adapters.rabbitmq.sender import RabbitPublisher, Sender
from dalsegno.adapters.rabbitmq.server import RabbitServer
from dalsegno.adapters.rabbitmq.tasks import RabbitTasks
from dalsegno.adapters.rabbitmq.topology import Topology, TopologyDiffers
from dalsegno.errors import BadConfiguration
from dalsegno.ports.messages import Publications
from dalsegno.ports.stack import Stack

__all__ = [
    "SCHEMES",
    "Address",
    "ForeignMessages",
    "RabbitBroker",
    "RabbitDeadLetters",
    "RabbitPublisher",
    "RabbitServer",
    "make_broker",
    "open_broker",
    "parse_address",
]


async def open_broker(url: str, stack: Stack) -> Stack:
    """Return the stack with RabbitMQ as its broker.

    A RabbitMQ that is away, or has queues with other arguments, is connected to as soon as it is there and they fit:
    until then work is found in the store. One that refuses the login is an error of configuration.
    """
    broker = await make_broker(url, stack)
    tasks = RabbitTasks(broker.sender.link.address, broker.sender.topology)

    async def close() -> None:
        await broker.close()
        await stack.close()

    return replace(
        stack,
        broker=broker,
        close=close,
        servers=(*stack.servers, RabbitServer(broker, tasks)),
        sources=(*stack.sources, broker.foreign),
        publisher=RabbitPublisher(broker.sender),
        dead_letters=(*stack.dead_letters, RabbitDeadLetters(broker.sender)),
        task_transports=(tasks, *stack.task_transports),
        step_by_step=True,
    )


async def make_broker(url: str, stack: Stack) -> RabbitBroker:
    address, topology = parse_address(url), Topology()
    sender, receiver = Sender(address, topology), Receiver(address, topology)
    foreign = ForeignMessages(sender)
    known = KnownTokens(stack.archive.definition_by_hash, _hashes_of(stack.publications))
    broker = RabbitBroker(stack.ledger, stack.broker, sender, receiver, foreign, known)
    error = await asyncio.shield(sender.link.start())
    if isinstance(error, BadConfiguration) and not isinstance(error, TopologyDiffers):
        await broker.close()
        raise error
    return broker


LATER_THAN_ALL = 2**31 - 1
"""The number of no event."""


def _hashes_of(publications: Publications | None) -> HashesOf:
    """Return how the definitions of executions are found: all in one query, without their events."""

    async def hashes(executions: Sequence[str]) -> Mapping[str, str]:
        if publications is None:
            return {}
        found = await publications.news(dict.fromkeys(executions, LATER_THAN_ALL))
        return {execution: news.definition for execution, news in found.items()}

    return hashes
