"""A master that reads all statuses and completions, and checks their order for each execution."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from dalsegno.adapters.rabbitmq.amqp.address import parse_address
from dalsegno.adapters.rabbitmq.amqp.channel import Channel, Message
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.topology import COMPLETION, NODE_STATUS, Topology

PREFETCH = 1_000
SHOWN = 10


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
        for queue in (NODE_STATUS, COMPLETION):
            await channel.consume(queue, queue, partial(self._receive, channel, queue))
        try:
            yield
        finally:
            await connection.close()

    def _receive(self, channel: Channel, queue: str, message: Message) -> None:
        self.note(queue, message.properties.message_id or "")
        channel.ack(message.tag)

    def note(self, queue: str, identity: str) -> None:
        """``identity``: the execution, the number of the event, and the status.

        A completion leaves after the last status, but comes on another queue, so it may overtake statuses that wait.
        """
        execution, number, _ = identity.rsplit(":", 2)
        if queue == COMPLETION:
            self.completions += 1
            self._complain(execution in self._ended, f"{identity} was told before")
            self._ended.add(execution)
            return
        self.statuses += 1
        last = self._last.get(execution, 0)
        self._complain(int(number) < last, f"{identity} came after the status of event {last}")
        self._last[execution] = max(last, int(number))

    def _complain(self, is_wrong: bool, sentence: str) -> None:
        self.misplaced += is_wrong
        if is_wrong and len(self.wrong) < SHOWN:
            self.wrong.append(sentence)
