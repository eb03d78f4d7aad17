"""What is delivered to this process: consumers of the queues it serves, and the messages it has not acknowledged.

The prefetch is what the worker can run now, so that no worker hoards messages. Consumers exist only during a take: a
message that was delivered but not taken goes back after a moment. Each set of queues has a channel of its
own, and so gets only the messages of those queues.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable

from dalsegno.adapters.rabbitmq.amqp.address import Address
from dalsegno.adapters.rabbitmq.amqp.channel import Channel, Message
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.amqp.errors import ChannelClosed, ConnectionLost
from dalsegno.adapters.rabbitmq.link import Link
from dalsegno.adapters.rabbitmq.topology import Topology, execution_queue_name
from dalsegno.errors import DalSegnoError

logger = logging.getLogger("dalsegno.rabbitmq")

RETURNED_AFTER = 1.0
"""Seconds after which messages that were not taken go back to their queue."""
SLACK = 0.8
"""The prefetch is lowered when less than this part of it is wanted, and raised when it brings less than this part of
what the worker has room for: each change is a message to the broker.
"""
EXACT_UP_TO = 20
LARGE = 65_536
HELD_BYTES = 64 * 1024 * 1024
"""Bytes of large messages that are held at a time. What exceeds them goes back to its queue, a moment later. A message
that is larger by itself is rejected, which makes it a dead letter without a recorded reason.
"""
PAUSE = 1.0
MOST_FOREIGN = 50
"""Messages of other programs that are taken in at a time."""


class Receiver:
    def __init__(self, address: Address, topology: Topology, link: Link | None = None) -> None:
        """``link``: a connection that another receiver sets up."""
        self.link = link or Link(address, "consuming", self.set_up)
        self.topology = topology
        self.others: list[Receiver] = []
        """Receivers of other queues, each with a channel of its own on the same connection."""
        self.on_message: Callable[[], None] = lambda: None
        self.waiting: deque[Message] = deque()
        """Delivered, but not taken yet."""
        self.delivered = 0
        self._channel: Channel | None = None
        self._served: tuple[str, ...] = ()
        """Queues of this project that are consumed, or shall be."""
        self._consumers: dict[str, str] = {}
        """Queues of RabbitMQ by consumer."""
        self._prefetch = 0
        self._unanswered = 0
        """Messages taken and neither acknowledged nor given back."""
        self._open: dict[int, None] = {}
        """Tags of all messages that are delivered and not answered, in their order."""
        self._acknowledged: list[int] = []
        """Tags of messages that are answered, and of which RabbitMQ is told in this turn of the event loop."""
        self.foreign = 0
        """Those of them that other programs sent."""
        self._bytes = 0
        """Bytes of large messages that are held."""
        self._returning: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()

    @property
    def channel(self) -> Channel | None:
        """The channel of the messages that are delivered now: a message belongs to the channel it came on."""
        return self._channel

    @property
    def unanswered(self) -> int:
        return self._unanswered

    @property
    def is_ready(self) -> bool:
        return self.link.is_ready and self._channel is not None and self._channel.closed is None

    def another(self) -> Receiver:
        found = Receiver(self.link.address, self.topology, self.link)
        found.on_message = self.on_message
        self.others.append(found)
        return found

    async def set_up(self, connection: Connection) -> None:
        """Open the channels of a new connection; what was delivered on the last one is delivered again."""
        for receiver in (self, *self.others):
            await receiver.open_channel(connection)

    async def open(self) -> None:
        """Open the channel, if the connection was set up before there was this receiver."""
        async with self._changing:
            connection = self.link.connection
            if self._channel is None and connection is not None:
                try:
                    await self.open_channel(connection)
                except DalSegnoError as error:
                    logger.warning("RabbitMQ opens no channel: %s", error)
                    connection.abort(str(error))

    async def discard(self, other: Receiver) -> None:
        """Close the channel of another, unused receiver. RabbitMQ queues its unacknowledged messages again."""
        self.others.remove(other)
        await other.close()
        if other.channel is not None:
            await other.channel.close()

    async def open_channel(self, connection: Connection) -> None:
        self.waiting.clear()
        self._consumers.clear()
        self._prefetch = self._unanswered = self._bytes = 0
        self._open.clear()
        self._acknowledged.clear()
        channel = await connection.channel()
        channel.on_cancelled = self._cancelled
        channel.on_closed = self._closed
        channel.accepts = self._accepts
        await self.topology.declare_execution_queues(channel, self._served)
        self._channel = channel

    # -- taking -------------------------------------------------------------------------------------------------

    async def serve(self, queues: Iterable[str], room: int) -> None:
        """Consume these queues, with room for so many messages more."""
        if self._returning is not None:
            self._returning.cancel()
            self._returning = None
        served = tuple(dict.fromkeys(queues))
        wanted = {execution_queue_name(queue) for queue in served}
        self._wish(room)
        if wanted != set(self._consumers.values()) and self.is_ready:
            async with self._changing:
                await self._consume(served, wanted)

    async def _consume(self, served: tuple[str, ...], wanted: set[str]) -> None:
        channel = self._channel
        if channel is None:
            return
        try:
            await self.topology.declare_execution_queues(
                channel, (queue for queue in served if not self.topology.knows(queue))
            )
            for tag, queue in list(self._consumers.items()):
                if queue not in wanted:
                    await channel.cancel(tag)
                    self._consumers.pop(tag, None)  # gone already if the channel has closed meanwhile
            for queue in sorted(wanted - set(self._consumers.values())):
                self._consumers[queue] = queue  # before the call: deliveries may come with its reply
                await channel.consume(queue, queue, self._received)
            self._served = served
        except DalSegnoError as error:
            logger.warning("RabbitMQ does not deliver: %s", error)
            if channel.connection.lost is None:
                channel.connection.abort(str(error))

    def next(self, most: int) -> list[Message]:
        """Return messages that were delivered, at most so many; each must be answered."""
        taken = [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]
        self._unanswered += len(taken)
        return taken

    def idle(self) -> None:
        """Note that no take is in progress."""
        if self._returning is None and self._consumers:
            self._returning = asyncio.get_running_loop().call_later(RETURNED_AFTER, self._return)

    def ack(self, channel: Channel | None, message: Message) -> None:
        if channel is not None and channel is self._channel:
            self._answered(message)
            if not self._acknowledged:
                asyncio.get_running_loop().call_soon(self._send_acknowledgements, channel)
            self._acknowledged.append(message.tag)

    def give_back(self, channel: Channel | None, message: Message) -> None:
        if channel is not None and channel is self._channel:
            self._answered(message)
            channel.nack(message.tag)

    def reject(self, channel: Channel | None, message: Message) -> None:
        """Let RabbitMQ make a message a dead letter."""
        if channel is not None and channel is self._channel:
            self._answered(message)
            channel.nack(message.tag, requeue=False)

    def _answered(self, message: Message) -> None:
        self._unanswered -= 1
        self._open.pop(message.tag, None)
        self._free(message)

    def _send_acknowledgements(self, channel: Channel) -> None:
        """Acknowledge together what lies before the oldest message that is not answered: for RabbitMQ, each
        acknowledgement is work of three of its processes.
        """
        if channel is not self._channel or not self._acknowledged:
            return
        tags, self._acknowledged = self._acknowledged, []
        oldest = next(iter(self._open), None)
        before = tags if oldest is None else [tag for tag in tags if tag < oldest]
        if before:
            channel.ack(max(before), multiple=len(before) > 1)
        if len(before) < len(tags):
            for tag in tags:
                if oldest is not None and tag > oldest:
                    channel.ack(tag)

    def _free(self, message: Message) -> None:
        if len(message.body) > LARGE:
            self._bytes = max(0, self._bytes - len(message.body))

    async def close(self) -> None:
        if self._returning is not None:
            self._returning.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._acknowledged and self._channel is not None:
            self._send_acknowledgements(self._channel)
        for other in self.others:
            await other.close()

    # -- what arrives -------------------------------------------------------------------------------------------

    def _accepts(self, size: int) -> bool:
        if size <= LARGE:
            return True
        if size > HELD_BYTES or (self._bytes and self._bytes + size > HELD_BYTES):
            return False
        self._bytes += size
        return True

    def _received(self, message: Message) -> None:
        self.delivered += 1
        self._open[message.tag] = None
        channel = self._channel
        if message.skipped and channel is not None:
            self._put_aside(channel, message)
            return
        self.waiting.append(message)
        self.on_message()

    def _put_aside(self, channel: Channel, message: Message) -> None:
        if message.skipped > HELD_BYTES:
            logger.warning(
                "a message of %d bytes is a dead letter: at most %d are read", message.skipped, HELD_BYTES
            )
            self._refuse(channel, message.tag, requeue=False)
        else:
            asyncio.get_running_loop().call_later(PAUSE, self._refuse, channel, message.tag)

    def _refuse(self, channel: Channel, tag: int, requeue: bool = True) -> None:
        if channel is self._channel:
            self._open.pop(tag, None)
        channel.nack(tag, requeue=requeue)

    def _wish(self, room: int) -> None:
        """Ask for as many messages as can be run now, besides those that are not answered yet. Many messages of other
        programs do not bring more of them."""
        excess = max(0, self.foreign - MOST_FOREIGN)
        channel, held = self._channel, self._unanswered - excess
        wanted = held + room
        if channel is None or wanted == self._prefetch or wanted <= 0:
            return
        is_near = SLACK * self._prefetch <= wanted and SLACK * room <= self._prefetch - held
        if not is_near or wanted <= EXACT_UP_TO:
            self._prefetch = wanted
            channel.prefetch(wanted)

    def _return(self) -> None:
        """End the consumers, and give back what was delivered and not taken."""
        self._returning = None
        task = asyncio.get_running_loop().create_task(self._end_consumers())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end_consumers(self) -> None:
        async with self._changing:
            channel = self._channel
            try:
                for tag in list(self._consumers):
                    if channel is not None:
                        await channel.cancel(tag)
                    self._consumers.pop(tag, None)
            except (ChannelClosed, ConnectionLost):
                return  # everything goes back by itself
        waiting, self.waiting = self.waiting, deque()
        for message in waiting:
            self._free(message)
            if channel is not None:
                self._refuse(channel, message.tag)
        self.on_message()  # a take that began meanwhile needs consumers again

    def _cancelled(self, tag: str) -> None:
        """The queue of a consumer was deleted: everything is declared again with the next connection."""
        self._consumers.pop(tag, None)
        if self.link.connection is not None:
            self.link.connection.abort(f"the queue '{tag}' was deleted")

    def _closed(self, error: ChannelClosed | ConnectionLost) -> None:
        self.waiting.clear()
        self._consumers.clear()
        self._open.clear()
        self._bytes = 0
        if isinstance(error, ChannelClosed) and self.link.connection is not None:
            self.link.connection.abort(str(error), error.reply_code)
        self.on_message()  # a waiting take checks why no message comes
