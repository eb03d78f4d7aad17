"""A channel: calls and their replies, messages with confirmations, consumers.

A message is confirmed by the broker in its own time: ``publish`` returns at once, and the callback receives what
became of the message. Everything that waits is answered when the channel or the connection ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, Protocol

from msgspec import Struct

from dalsegno.adapters.rabbitmq.amqp import frames
from dalsegno.adapters.rabbitmq.amqp.errors import ChannelClosed, ConnectionLost, ProtocolError
from dalsegno.adapters.rabbitmq.amqp.frames import Delivery, Frame, Method, Name, OwnProperties, Properties

CALL_TIMEOUT = 10.0
"""Seconds after which a call without a reply fails."""

Outcome = Literal["confirmed", "refused", "returned", "lost"]
"""What became of a published message. returned: no queue takes it. lost: the channel ended before an answer."""
Done = Callable[[Outcome], None]


class Carrier(Protocol):
    """What a channel uses of its connection."""

    loop: asyncio.AbstractEventLoop
    frame_max: int
    lost: ConnectionLost | None

    def write(self, data: bytes) -> None: ...

    def abort(self, reason: str, reply_code: int = 0) -> None: ...

    def forget(self, channel: Channel) -> None: ...


class Message(Struct, weakref=True):
    """A message as it was delivered."""

    delivery: Delivery
    content: bytes
    """Its properties, as bytes."""
    body: bytes
    skipped: int = 0
    """The size of a body that was not kept, see `Channel.accepts`."""

    @property
    def tag(self) -> int:
        return self.delivery.delivery_tag

    @property
    def properties(self) -> Properties:
        return frames.read_content(self.content)[1]


class _Content:
    """A message of which not everything has arrived yet."""

    __slots__ = ("content", "is_skipped", "method", "parts", "received", "size")

    def __init__(self, method: bytes) -> None:
        self.method = method
        self.content = b""
        self.parts: list[bytes] = []
        self.size = -1
        self.received = 0
        self.is_skipped = False


class Channel:
    def __init__(self, connection: Carrier, number: int) -> None:
        self.connection = connection
        self.number = number
        self.closed: ChannelClosed | ConnectionLost | None = None
        """Why it ended; None while it is open."""
        self.on_closed: Callable[[ChannelClosed | ConnectionLost], None] = lambda error: None
        self.on_cancelled: Callable[[str], None] = lambda consumer: None
        """Receives the tag of a consumer that the broker has cancelled: its queue was deleted."""
        self.accepts: Callable[[int], bool] = lambda size: True
        """Whether a delivered body of this size is kept. Of any other only the size is."""
        self._replies: deque[asyncio.Future[Method]] = deque()
        self._got: deque[Message | None] = deque()
        self._content: _Content | None = None
        self._consumers: dict[str, Callable[[Message], None]] = {}
        self._unconfirmed: dict[int, tuple[str, Done]] = {}
        self._published = 0
        self._oldest = 1
        """No message before this one is unconfirmed."""
        self._returned: set[str] = set()

    # -- calls --------------------------------------------------------------------------------------------------

    async def call(self, name: Name, **arguments: Any) -> Method:
        """Send a method and return the broker's reply. Raise `ChannelClosed` if the broker refuses it."""
        if self.closed is not None:
            raise self.closed
        future: asyncio.Future[Method] = asyncio.get_running_loop().create_future()
        self._replies.append(future)
        self.connection.write(frames.method_frame(self.number, name, **arguments))
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                return await asyncio.shield(future)
        except TimeoutError:
            # Replies carry no number: after a missing one, none can be matched to its call.
            self.connection.abort(f"RabbitMQ has not answered for {CALL_TIMEOUT:g} s")
            raise ConnectionLost(f"RabbitMQ has not answered for {CALL_TIMEOUT:g} s") from None

    async def declare_exchange(self, name: str, kind: str) -> None:
        await self.call(frames.EXCHANGE_DECLARE, exchange=name, type=kind, durable=True)

    async def declare_queue(
        self, name: str, *, durable: bool = True, arguments: dict[str, Any] | None = None
    ) -> int:
        """Return the number of messages in it."""
        reply = await self.call(frames.QUEUE_DECLARE, queue=name, durable=durable, arguments=arguments or {})
        return int(reply.arguments["message_count"])

    async def depth(self, name: str) -> tuple[int, int]:
        """Return the numbers of messages and consumers of an existing queue."""
        reply = await self.call(frames.QUEUE_DECLARE, queue=name, passive=True)
        return reply.arguments["message_count"], reply.arguments["consumer_count"]

    async def bind(self, queue: str, exchange: str, routing_key: str) -> None:
        await self.call(frames.QUEUE_BIND, queue=queue, exchange=exchange, routing_key=routing_key)

    async def close(self) -> None:
        if self.closed is None:
            try:
                await self.call(frames.CHANNEL_CLOSE, reply_code=200, reply_text="done")
            except (ChannelClosed, ConnectionLost):
                return
            self.end(ChannelClosed(200, "closed by this process"))

    # -- publishing ---------------------------------------------------------------------------------------------

    async def confirm(self) -> None:
        """Ask for confirmations: from now on ``publish`` may be used."""
        await self.call(frames.CONFIRM_SELECT)

    @property
    def unconfirmed(self) -> int:
        return len(self._unconfirmed)

    def publish(
        self,
        exchange: str,
        routing_key: str,
        properties: Properties | OwnProperties,
        body: bytes,
        done: Done,
    ) -> None:
        """Publish a mandatory message; ``done`` receives what became of it, also if the connection ends."""
        if self.closed is not None:
            done("lost")
            return
        connection = self.connection
        self._published += 1
        self._unconfirmed[self._published] = (properties.message_id or "", done)
        connection.write(
            frames.publish_frames(self.number, exchange, routing_key, properties, body, connection.frame_max)
        )

    def _confirmed(self, tag: int, multiple: bool, outcome: Outcome) -> None:
        for each in range(self._oldest, tag + 1) if multiple else (tag,):
            entry = self._unconfirmed.pop(each, None)
            if entry is None:
                continue
            message_id, done = entry
            if self._returned and message_id in self._returned:
                self._returned.discard(message_id)
                done("returned")
            else:
                done(outcome)
        if multiple:
            self._oldest = max(self._oldest, tag + 1)

    # -- consuming ----------------------------------------------------------------------------------------------

    async def consume(self, queue: str, tag: str, receive: Callable[[Message], None]) -> None:
        self._consumers[tag] = receive
        await self.call(frames.BASIC_CONSUME, queue=queue, consumer_tag=tag)

    async def cancel(self, tag: str) -> None:
        """End a consumer. What was delivered to it before the reply is received."""
        await self.call(frames.BASIC_CANCEL, consumer_tag=tag)
        self._consumers.pop(tag, None)

    async def get(self, queue: str) -> Message | None:
        """Return the next message of a queue, or None. It is not acknowledged yet."""
        reply = await self.call(frames.BASIC_GET, queue=queue)
        return self._got.popleft() if reply.name == frames.BASIC_GET_OK else None

    def prefetch(self, count: int) -> None:
        """Limit the unacknowledged messages of all consumers of this channel together."""
        if self.closed is None:
            reply: asyncio.Future[Method] = self.connection.loop.create_future()
            reply.add_done_callback(_retrieve)
            self._replies.append(reply)
            count = min(count, 65_535)
            self.connection.write(
                frames.method_frame(self.number, frames.BASIC_QOS, prefetch_count=count, **{"global": True})
            )

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        if self.closed is None:
            self.connection.write(frames.ack_frame(self.number, tag, multiple=multiple))

    def nack(self, tag: int, *, requeue: bool = True) -> None:
        if self.closed is None:
            self.connection.write(frames.nack_frame(self.number, tag, requeue=requeue))

    # -- what arrives -------------------------------------------------------------------------------------------

    def received(self, frame: Frame) -> None:
        kind, _, payload = frame
        if kind == frames.METHOD:
            self._method(payload)
        elif kind == frames.CONTENT:
            self._header(payload)
        elif kind == frames.BODY:
            self._body(payload)

    def _method(self, payload: bytes) -> None:
        name = (payload[0] << 8 | payload[1], payload[2] << 8 | payload[3])
        if name in frames.METHODS_WITH_CONTENT:
            self._content = _Content(payload)
        elif name == frames.BASIC_ACK:
            self._confirmed(*frames.read_acknowledgement(payload), "confirmed")
        elif name == frames.BASIC_NACK:
            self._confirmed(*frames.read_acknowledgement(payload), "refused")
        else:
            self._control(frames.read_method(payload))

    def _control(self, method: Method) -> None:
        match method.name:
            case frames.CHANNEL_CLOSE:
                self.connection.write(frames.method_frame(self.number, frames.CHANNEL_CLOSE_OK))
                arguments = method.arguments
                self.end(ChannelClosed(arguments["reply_code"], arguments["reply_text"]))
            case frames.BASIC_CANCEL:
                tag = method.arguments["consumer_tag"]
                if not method.arguments["no_wait"]:
                    self.connection.write(
                        frames.method_frame(self.number, frames.BASIC_CANCEL_OK, consumer_tag=tag)
                    )
                if self._consumers.pop(tag, None) is not None:
                    self.on_cancelled(tag)
            case frames.CHANNEL_FLOW:
                active = method.arguments["active"]
                self.connection.write(frames.method_frame(self.number, frames.CHANNEL_FLOW_OK, active=active))
            case _:
                self._reply(method)

    def _reply(self, method: Method) -> None:
        if not self._replies:
            raise ProtocolError(f"the server sent the unexpected method {method.name}")
        future = self._replies.popleft()
        if not future.done():
            future.set_result(method)

    def _header(self, payload: bytes) -> None:
        content = self._expected_content()
        content.content = payload
        content.size = int.from_bytes(payload[4:12])
        is_delivery = content.method[2] << 8 | content.method[3] == frames.BASIC_DELIVER[1]
        content.is_skipped = is_delivery and content.size > 0 and not self.accepts(content.size)
        if content.size == 0:
            self._complete(content, b"")

    def _body(self, payload: bytes) -> None:
        content = self._expected_content()
        content.received += len(payload)
        if content.is_skipped:
            if content.received >= content.size:
                self._complete(content, b"")
            return
        if content.received == content.size and not content.parts:
            self._complete(content, payload)
            return
        content.parts.append(payload)
        if content.received >= content.size:
            self._complete(content, b"".join(content.parts))

    def _expected_content(self) -> _Content:
        if self._content is None:
            raise ProtocolError("the server sent content without a method")
        return self._content

    def _complete(self, content: _Content, body: bytes) -> None:
        self._content = None
        payload = content.method
        number = payload[2] << 8 | payload[3]
        if number == frames.BASIC_DELIVER[1]:
            delivery = frames.read_delivery(payload)
            receive = self._consumers.get(delivery.consumer_tag)
            if receive is None:
                self.nack(delivery.delivery_tag)
            else:
                skipped = content.size if content.is_skipped else 0
                receive(Message(delivery, content.content, body, skipped))
        elif number == frames.BASIC_RETURN[1]:
            message_id = frames.read_content(content.content)[1].message_id
            self._returned.add(message_id or "")
        else:
            method = frames.read_method(payload)
            arguments = method.arguments
            delivery = Delivery(
                "", arguments["delivery_tag"], arguments["redelivered"], arguments["routing_key"]
            )
            self._got.append(Message(delivery, content.content, body))
            self._reply(method)

    def end(self, error: ChannelClosed | ConnectionLost) -> None:
        """Note that the channel has ended: everything that waits is answered."""
        if self.closed is not None:
            return
        self.closed = error
        self.connection.forget(self)
        for future in self._replies:
            if not future.done():
                future.set_exception(error)
                future.add_done_callback(_retrieve)
        self._replies.clear()
        self._consumers.clear()
        waiting, self._unconfirmed = list(self._unconfirmed.values()), {}
        for _, done in waiting:
            done("lost")
        self.on_closed(error)


def _retrieve(future: asyncio.Future[Method]) -> None:
    """Retrieve the exception so that asyncio does not log it: the channel's owner gets it, too."""
    if not future.cancelled():
        future.exception()
