"""RabbitDeadLetters: what lies in the queue of dead letters, for people.

RabbitMQ has no way to look into a queue: messages are received, and what is neither requeued nor dropped goes back in
its order when the channel closes. Until then other consumers do not see them.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from msgspec.structs import replace

from dalsegno.adapters.rabbitmq.amqp.channel import Channel, Message
from dalsegno.adapters.rabbitmq.amqp.errors import ProtocolError
from dalsegno.adapters.rabbitmq.amqp.fields import Timestamp
from dalsegno.adapters.rabbitmq.amqp.frames import Properties
from dalsegno.adapters.rabbitmq.foreign_messages import AT, CODE, OUR_HEADERS, REASON, text_headers
from dalsegno.adapters.rabbitmq.sender import OutgoingLetter, Sender
from dalsegno.adapters.rabbitmq.topology import DEAD, EXECUTION
from dalsegno.errors import Unavailable
from dalsegno.ports.messages import DeadMessage

MOST = 100_000
"""Messages that are looked through."""
BROKER_HEADERS = ("x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason")
"""Headers with which RabbitMQ counts how often a message died."""


class RabbitDeadLetters:
    name = "RabbitMQ"

    def __init__(self, sender: Sender) -> None:
        self.sender = sender

    async def list(self, limit: int) -> Sequence[DeadMessage]:
        newest: deque[DeadMessage] = deque(maxlen=limit)
        async with self._channel() as channel:
            async for name, message in _messages(channel):
                newest.append(_as_dead(name, message))
        return list(reversed(newest))

    async def get(self, id: str) -> DeadMessage | None:
        async with self._channel() as channel:
            message = await _find(channel, id)
            return _as_dead(id, message) if message is not None else None

    async def requeue(self, id: str) -> bool:
        """Send a message to the queue it died in, without what made it a dead letter: its tries begin at zero."""
        async with self._channel() as channel:
            message = await _find(channel, id)
            if message is None:
                return False
            letter = OutgoingLetter(
                _origin(_properties(message)), _as_new(_properties(message)), message.body, exchange=""
            )
            if await self.sender.send_all([letter]) != 1:
                raise Unavailable(
                    self.sender.problem() or "RabbitMQ has not confirmed the message; try again"
                )
            channel.ack(message.tag)
            return True

    async def drop(self, id: str) -> bool:
        async with self._channel() as channel:
            message = await _find(channel, id)
            if message is not None:
                channel.ack(message.tag)
            return message is not None

    @contextlib.asynccontextmanager
    async def _channel(self) -> AsyncIterator[Channel]:
        connection = self.sender.link.connection
        if connection is None:
            raise Unavailable(self.sender.link.problem)
        channel = await connection.channel()
        try:
            yield channel
        finally:
            await channel.close()


async def _messages(channel: Channel) -> AsyncIterator[tuple[str, Message]]:
    """Return the messages, oldest first, with their ids: several with the same one are numbered."""
    times: Counter[str] = Counter()
    for _ in range(MOST):
        message = await channel.get(DEAD)
        if message is None:
            return
        name = _properties(message).message_id or "sha256-" + hashlib.sha256(message.body).hexdigest()[:32]
        times[name] += 1
        yield (name if times[name] == 1 else f"{name}#{times[name]}"), message


def _properties(message: Message) -> Properties:
    """Return the properties of a message; none if they cannot be read, which may be why it lies here."""
    try:
        return message.properties
    except (ProtocolError, ValueError):
        return Properties()


async def _find(channel: Channel, wanted: str) -> Message | None:
    async for name, message in _messages(channel):
        if name == wanted:
            return message
    return None


def _as_dead(id: str, message: Message) -> DeadMessage:
    properties = _properties(message)
    headers = properties.headers or {}
    death = _death(properties)
    died_at = death.get("time")
    at = died_at.seconds if isinstance(died_at, Timestamp) else 0.0
    with contextlib.suppress(ValueError):
        at = datetime.fromisoformat(str(headers.get(AT, ""))).timestamp()
    reason = (
        str(headers.get(REASON, ""))
        or f"{death.get('reason', 'unknown')} in the queue '{_origin(properties)}'"
    )
    code = str(headers.get(CODE, "")) or str(death.get("reason", "unknown")).upper()
    shown = {key: value for key, value in text_headers(properties).items() if key not in (REASON, CODE, AT)}
    return DeadMessage(id, _origin(properties), message.body, reason, code, at, shown)


def _death(properties: Properties) -> dict[str, object]:
    deaths = (properties.headers or {}).get("x-death")
    first = deaths[0] if isinstance(deaths, list) and deaths else None
    return first if isinstance(first, dict) else {}


def _origin(properties: Properties) -> str:
    """Return the queue in which RabbitMQ let the message die, else the one that all messages of others go to."""
    queue = _death(properties).get("queue")
    return queue if isinstance(queue, str) and queue.startswith(EXECUTION) and queue != DEAD else EXECUTION


def _as_new(properties: Properties) -> Properties:
    headers = {
        key: value
        for key, value in (properties.headers or {}).items()
        if key not in OUR_HEADERS and key not in BROKER_HEADERS
    }
    return replace(properties, headers=headers or None)
