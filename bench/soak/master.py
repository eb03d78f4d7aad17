"""A master that reads all statuses and completions, and checks their order for each execution."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from dalsegno.adapters.rabbitmq.amqp.address import parse_address
from dalsegno.adapters.rabbitmq.amqp.channel import Channel, Message
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.topology import COMPLETION, EXCHANGE, NODE_STATUS, Topology

PREFETCH = 1_000
SHOWN = 10
COPIES = "soak.copies"
"""A queue that gets statuses and completions in the order in which they were published."""
COPIES_EXPIRE = 60_000


class Master:
    """While no process dies, nothing is told twice."""

    def __init__(self) -> None:
        self.statuses = self.completions = self.misplaced = 0
        self.wrong: list[str] = []
        """The first messages that came out of order or twice."""
        self._last: dict[str, int] = {}
        """Number of the last event that was told, by execution."""
        self._ended: set[str] = set()

    @asynccontextmanager
    async def reading(self, url: str) -> AsyncIterator[None]:
        connection = await Connection.open(parse_address(url), name="soak master")
        await Topology().declare(connection)
        channel = await connection.channel()
        channel.prefetch(PREFETCH)
        await channel.declare_queue(COPIES, durable=False, arguments={"x-expires": COPIES_EXPIRE})
        await channel.consume(COPIES, COPIES, partial(self._receive, channel))
        for queue in (NODE_STATUS, COMPLETION):
            await channel.bind(COPIES, EXCHANGE, queue)
            await channel.consume(queue, queue, partial(self._count, channel, queue))
        try:
            yield
        finally:
            await connection.close()

    def _count(self, channel: Channel, queue: str, message: Message) -> None:
        if queue == COMPLETION:
            self.completions += 1
        else:
            self.statuses += 1
        channel.ack(message.tag)

    def _receive(self, channel: Channel, message: Message) -> None:
        self.note(message.delivery.routing_key, message.properties.message_id or "")
        channel.ack(message.tag)

    def note(self, queue: str, identity: str) -> None:
        """``identity``: the execution, the number of the event, and the status."""
        execution, number, _ = identity.rsplit(":", 2)
        last = self._last.get(execution, 0)
        self._complain(execution in self._ended, f"{identity} came after the completion")
        if queue == COMPLETION:
            self._ended.add(execution)
            return
        self._complain(int(number) < last, f"{identity} came after the status of event {last}")
        self._last[execution] = max(last, int(number))

    def _complain(self, is_wrong: bool, sentence: str) -> None:
        self.misplaced += is_wrong
        if is_wrong and len(self.wrong) < SHOWN:
            self.wrong.append(sentence)
