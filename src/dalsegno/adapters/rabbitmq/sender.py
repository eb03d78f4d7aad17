"""The one channel on which everything leaves this process, in order, each message with a confirmation; and the
statuses and completions that leave on it for the masters of other programs.

- A message that comes back because no queue takes it has the topology declared again and is sent again.
- A confirmation that is negative, or not there after ``CONFIRM_TIMEOUT``, is a failure. While the broker is silent,
  blocked or away nothing is sent: what would be announced is in the ledger anyway.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from dalsegno.adapters.rabbitmq.amqp.address import Address
from dalsegno.adapters.rabbitmq.amqp.channel import Channel, Outcome
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.amqp.errors import ChannelClosed, ConnectionLost
from dalsegno.adapters.rabbitmq.amqp.frames import OwnProperties, Properties, own_properties
from dalsegno.adapters.rabbitmq.link import Link
from dalsegno.adapters.rabbitmq.topology import COMPLETION, EXCHANGE, HIGHEST_PRIORITY, NODE_STATUS, Topology
from dalsegno.errors import DalSegnoError
from dalsegno.ports.messages import OutgoingMessage

logger = logging.getLogger("dalsegno.rabbitmq")

JSON = "application/json"
QUEUES = {"status": NODE_STATUS, "completion": COMPLETION}
CONFIRM_TIMEOUT = 5.0
LOOK_EVERY = 0.5
"""Seconds between two checks for confirmations that are overdue."""
MOST_UNCONFIRMED = 20_000
"""Messages without an answer beyond which nothing is sent: the broker is slower than the work."""

Answered = Callable[[bool], None]
"""Receives whether the message is confirmed."""


class OutgoingLetter(Struct):
    """A message on its way."""

    routing_key: str
    properties: Properties | OwnProperties
    body: bytes
    exchange: str = EXCHANGE


class _Pending(Struct):
    letter: OutgoingLetter
    answered: Answered | None
    sent_at: float
    again: bool = False
    """It came back once and was sent a second time."""


class _Answers:
    """The answers to messages that were sent together."""

    __slots__ = ("_answered", "_confirmed", "_missing")

    def __init__(self, count: int, answered: Callable[[int], None]) -> None:
        self._missing = self._confirmed = count
        self._answered = answered

    def add(self, place: int, confirmed: bool) -> None:
        self._missing -= 1
        if not confirmed:
            self._confirmed = min(self._confirmed, place)
        if not self._missing:
            self._answered(self._confirmed)


class Sender:
    def __init__(self, address: Address, topology: Topology) -> None:
        self.link = Link(address, "publishing", self.set_up)
        self.topology = topology
        self.confirmed = 0
        self.failed = 0
        self.on_answer: Callable[[int], None] = lambda oldest: None
        """Receives the number of the oldest message without an answer, whenever that changes."""
        self._channel: Channel | None = None
        self._pending: dict[int, _Pending] = {}
        self._last = 0
        self._oldest = 1
        self._is_silent = False
        """A confirmation is overdue and none has come since."""
        self._look: asyncio.TimerHandle | None = None
        self._unroutable: deque[int] = deque()
        self._declaring: asyncio.Task[None] | None = None
        self._ready_callbacks: list[Callable[[], None]] = []

    async def set_up(self, connection: Connection) -> None:
        """Open the channel of a new connection."""
        await self.topology.declare(connection)
        channel = await connection.channel()
        await channel.confirm()
        channel.on_closed = self._channel_closed
        connection.on_blocked = self._blocked
        connection.on_writable = self.tell_ready
        self._is_silent = False
        self._channel = channel

    @property
    def unconfirmed(self) -> int:
        return len(self._pending)

    @property
    def last(self) -> int:
        """The number of the message sent last."""
        return self._last

    @property
    def oldest(self) -> int:
        """The number of the oldest message without an answer; beyond the last one if all are answered."""
        return self._oldest

    def problem(self) -> str:
        """Return why nothing can be sent, or an empty string."""
        connection = self.link.connection
        if connection is None:
            return self.link.problem
        if connection.blocked:
            return f"RabbitMQ accepts no messages: {connection.blocked}"
        if self._is_silent:
            return f"RabbitMQ has not confirmed a message for {CONFIRM_TIMEOUT:g} s"
        if self._channel is None or self._channel.closed is not None:
            return "the channel to RabbitMQ is being opened again"
        return ""

    def may_send(self) -> bool:
        connection, channel = self.link.connection, self._channel
        return (
            connection is not None
            and channel is not None
            and channel.closed is None
            and not connection.blocked
            and not connection.is_congested
            and not self._is_silent
            and len(self._pending) < MOST_UNCONFIRMED
        )

    def on_ready(self, callback: Callable[[], None]) -> None:
        """Call when messages can be sent again."""
        self._ready_callbacks.append(callback)

    def send(self, letter: OutgoingLetter, answered: Answered | None = None) -> None:
        """Send a message, if that is possible now; ``answered`` is called in any case."""
        self._last += 1
        number = self._last
        now = asyncio.get_running_loop().time()
        self._pending[number] = _Pending(letter, answered, now)
        self._publish(number, letter)
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look_for_overdue)

    def send_in_order(self, letters: Sequence[OutgoingLetter], answered: Callable[[int], None]) -> None:
        """Send messages in order. Once all are answered, ``answered`` receives how many, from the first on, are
        confirmed.
        """
        if not letters or not self.may_send():
            answered(0)
            return
        answers = _Answers(len(letters), answered)
        for place, letter in enumerate(letters):
            self.send(letter, partial(answers.add, place))

    async def send_all(self, letters: Sequence[OutgoingLetter]) -> int:
        """Send messages in order; return how many, from the first on, are confirmed."""
        confirmed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.send_in_order(letters, lambda count: None if confirmed.done() else confirmed.set_result(count))
        return await confirmed

    async def drain(self, seconds: float) -> None:
        """Wait until everything is answered, but not longer than this."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self._pending and self.may_send() and loop.time() < deadline:  # noqa: ASYNC110 - see below
            await asyncio.sleep(0.01)  # only while a process ends

    async def close(self) -> None:
        if self._look is not None:
            self._look.cancel()
        if self._declaring is not None:
            self._declaring.cancel()
            await asyncio.gather(self._declaring, return_exceptions=True)

    # -- answers ------------------------------------------------------------------------------------------------

    def _publish(self, number: int, letter: OutgoingLetter) -> None:
        channel = self._channel
        if channel is None or channel.closed is not None:
            self._answer(number, False)
            return
        channel.publish(
            letter.exchange,
            letter.routing_key,
            letter.properties,
            letter.body,
            partial(self._outcome, number),
        )

    def _outcome(self, number: int, outcome: Outcome) -> None:
        pending = self._pending.get(number)
        if pending is None:
            self._heard()  # late: it has been counted as a failure
            return
        if outcome == "returned" and not pending.again:
            pending.again = True
            self._unroutable.append(number)
            if self._declaring is None:
                self._declaring = asyncio.get_running_loop().create_task(self._declare_again())
            return
        if outcome == "confirmed":
            self._heard()
        self._answer(number, outcome == "confirmed")

    def _answer(self, number: int, confirmed: bool) -> None:
        pending = self._pending.pop(number, None)
        if pending is None:
            return
        if confirmed:
            self.confirmed += 1
        else:
            self.failed += 1
        if pending.answered is not None:
            pending.answered(confirmed)
        if len(self._pending) == MOST_UNCONFIRMED - 1:
            self.tell_ready()
        if number == self._oldest:
            while self._oldest <= self._last and self._oldest not in self._pending:
                self._oldest += 1
            self.on_answer(self._oldest)

    def _heard(self) -> None:
        if self._is_silent:
            self._is_silent = False
            self.tell_ready()

    def tell_ready(self) -> None:
        for callback in self._ready_callbacks:
            callback()

    def _blocked(self, reason: str) -> None:
        if reason:
            logger.warning(
                "RabbitMQ accepts no messages: %s; work is claimed from the store meanwhile", reason
            )
        else:
            logger.info("RabbitMQ accepts messages again")
            self.tell_ready()

    def _channel_closed(self, error: ChannelClosed | ConnectionLost) -> None:
        """A channel that the broker closes takes the connection with it: both are opened again."""
        connection = self.link.connection
        if isinstance(error, ChannelClosed) and connection is not None:
            connection.abort(str(error), error.reply_code)

    def _look_for_overdue(self) -> None:
        """Count confirmations that are overdue as failures, oldest first."""
        loop = asyncio.get_running_loop()
        self._look = None
        before = loop.time() - CONFIRM_TIMEOUT
        overdue = 0
        for number in range(self._oldest, self._last + 1):
            pending = self._pending.get(number)
            if pending is None:
                continue
            if pending.sent_at > before:
                break
            self._is_silent = True
            overdue += 1
            self._answer(number, False)
        if overdue:
            logger.warning("RabbitMQ has not confirmed %d messages within %g s", overdue, CONFIRM_TIMEOUT)
        if self._pending:
            self._look = loop.call_later(LOOK_EVERY, self._look_for_overdue)

    # -- messages that came back --------------------------------------------------------------------------------

    async def _declare_again(self) -> None:
        """Declare the topology, and send again what no queue took."""
        connection = self.link.connection
        try:
            if connection is not None:
                logger.warning(
                    "RabbitMQ has no queue for %d messages: everything is declared again",
                    len(self._unroutable),
                )
                await self.topology.declare(connection)
        except DalSegnoError as error:
            logger.warning("the queues cannot be declared again: %s", error)
        finally:
            self._declaring = None
            numbers, self._unroutable = list(self._unroutable), deque()
            for number in numbers:
                pending = self._pending.get(number)
                if pending is not None:
                    self._publish(number, pending.letter)


class RabbitPublisher:
    """Publishes on the channel of the announcements, so that everything leaves in the order in which it was given."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender

    def publish(self, messages: Sequence[OutgoingMessage], answered: Callable[[int], None]) -> None:
        self.sender.send_in_order([_letter(message) for message in messages], answered)

    def ready(self) -> bool:
        return self.sender.may_send()

    def on_ready(self, callback: Callable[[], None]) -> None:
        self.sender.on_ready(callback)
        self.sender.link.on_up(callback)


def _letter(message: OutgoingMessage) -> OutgoingLetter:
    priority = min(max(message.priority, 0), HIGHEST_PRIORITY)
    properties = own_properties(message.message_id, JSON, priority, message.traceparent)
    return OutgoingLetter(QUEUES[message.kind], properties, message.body)
