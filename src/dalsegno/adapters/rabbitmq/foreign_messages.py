"""Execution messages of other programs: they go to the intake, then away, up the ladder of retries, or to the dead.

- taken or a duplicate: acknowledged, after what it caused is committed
- refused: a dead letter at once, byte for byte, with the reason in its headers
- a fault of the system: it comes again after 5, 25 and 125 seconds, then it is a dead letter
- the store is away: it goes back to its queue, and nothing is consumed for a moment
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from msgspec.structs import replace

from dalsegno.adapters.rabbitmq.amqp.channel import Channel, Message
from dalsegno.adapters.rabbitmq.amqp.errors import ProtocolError
from dalsegno.adapters.rabbitmq.amqp.fields import table
from dalsegno.adapters.rabbitmq.amqp.frames import PERSISTENT, Properties
from dalsegno.adapters.rabbitmq.receiver import Receiver
from dalsegno.adapters.rabbitmq.sender import OutgoingLetter, Sender
from dalsegno.adapters.rabbitmq.topology import DEAD, LADDER
from dalsegno.errors import Unavailable
from dalsegno.ports.messages import ForeignMessage, Intake

logger = logging.getLogger("dalsegno.rabbitmq")

REASON, CODE, AT, TRIES = "x-dalsegno-reason", "x-dalsegno-code", "x-dalsegno-at", "x-dalsegno-tries"
USER = "x-dalsegno-user-id"
"""The sender's user: RabbitMQ accepts the property itself only from that user."""
OUR_HEADERS = (REASON, CODE, AT, TRIES, USER)
PAUSE = 1.0
"""Seconds before a message goes back that cannot be taken now."""
LONGEST_REASON = 8_000
MOST_HEADER_BYTES = 65_536


class ForeignMessages:
    """The `MessageSource` of RabbitMQ. Messages arrive at workers, among those of this project."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender
        self.on_free: Callable[[], None] = lambda: None
        self.taken = 0
        self.dead = 0
        self.retried = 0
        self._intake: Intake | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, intake: Intake) -> None:
        self._intake = intake

    async def stop(self) -> None:
        """Finish what is being taken; the rest goes back to its queue when the connection closes."""
        self._intake = None
        await self.close()

    async def close(self) -> None:
        tasks = list(self._tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=PAUSE)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def receive(self, receiver: Receiver, message: Message) -> None:
        receiver.foreign += 1
        task = asyncio.get_running_loop().create_task(self._handle(receiver, message, receiver.channel))
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, receiver))

    def _ended(self, receiver: Receiver, task: asyncio.Task[None]) -> None:
        receiver.foreign -= 1
        self._tasks.discard(task)

    async def _handle(self, receiver: Receiver, message: Message, channel: Channel | None) -> None:
        try:
            properties = message.properties
        except (ProtocolError, ValueError) as error:
            logger.warning("a message whose properties cannot be read is a dead letter: %s", error)
            receiver.reject(channel, message)
            self.on_free()
            return
        try:
            is_answered = await self._take(message, properties)
        except Unavailable as error:
            logger.debug("a message waits for the store: %s", error)
            is_answered = False
        if is_answered:
            receiver.ack(channel, message)
        else:
            await asyncio.sleep(PAUSE)
            receiver.give_back(channel, message)
        self.on_free()

    async def _take(self, message: Message, properties: Properties) -> bool:
        """Return True if the message may be acknowledged."""
        if self._intake is None:
            return False
        foreign = ForeignMessage(
            message.body, message.delivery.routing_key, properties.message_id, text_headers(properties)
        )
        try:
            taken = await self._intake.take(foreign)
        except Unavailable:
            raise
        except Exception as error:
            logger.exception("a message could not be taken in")
            return await self._try_later(message, properties, error)
        if taken.outcome == "refused":
            return await self.bury(message, properties, taken.reason, taken.code)
        self.taken += 1
        return True

    async def _try_later(self, message: Message, properties: Properties, error: Exception) -> bool:
        tries = _tries(properties)
        if tries >= len(LADDER):
            reason = (
                f"it could not be taken in {tries + 1} times, last because of {type(error).__name__}: {error}"
            )
            return await self.bury(message, properties, reason, "NOT_TAKEN")
        self.retried += 1
        headers = {**(properties.headers or {}), TRIES: tries + 1}
        return await self._send(LADDER[tries][0], properties, headers, message.body)

    async def bury(self, message: Message, properties: Properties, reason: str, code: str) -> bool:
        """Make a message a dead letter; return True if the broker holds it as one."""
        self.dead += 1
        logger.warning("a message of another program is a dead letter (%s): %s", code, reason)
        headers = {**(properties.headers or {}), REASON: reason[:LONGEST_REASON], CODE: code, AT: _now()}
        return await self._send(DEAD, properties, headers, message.body)

    async def _send(
        self, queue: str, properties: Properties, headers: Mapping[str, Any], body: bytes
    ) -> bool:
        if properties.user_id is not None:
            headers = {**headers, USER: properties.user_id}
        if len(table(dict(headers))) > MOST_HEADER_BYTES:  # a message's headers must fit into one frame
            headers = {key: value for key, value in headers.items() if key in OUR_HEADERS}
        kept = replace(properties, headers=headers, user_id=None, expiration=None, delivery_mode=PERSISTENT)
        return await self.sender.send_all([OutgoingLetter(queue, kept, body, exchange="")]) == 1


def text_headers(properties: Properties) -> dict[str, str]:
    return {key: value for key, value in (properties.headers or {}).items() if isinstance(value, str)}


def _tries(properties: Properties) -> int:
    tries = (properties.headers or {}).get(TRIES, 0)
    return tries if isinstance(tries, int) and tries >= 0 else 0


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
