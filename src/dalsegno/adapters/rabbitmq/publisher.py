"""RabbitPublisher: carries statuses and completions to the masters of other programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dalsegno.adapters.rabbitmq.amqp.frames import PERSISTENT, Properties
from dalsegno.adapters.rabbitmq.announcements import JSON
from dalsegno.adapters.rabbitmq.sender import OutgoingLetter, Sender
from dalsegno.adapters.rabbitmq.topology import COMPLETION, HIGHEST_PRIORITY, NODE_STATUS
from dalsegno.ports.messages import OutgoingMessage

QUEUES = {"status": NODE_STATUS, "completion": COMPLETION}


class RabbitPublisher:
    """Publishes on the channel of the announcements, so that everything leaves in the order in which it was given."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender

    async def publish(self, messages: Sequence[OutgoingMessage]) -> int:
        return await self.sender.send_all([_letter(message) for message in messages])

    def ready(self) -> bool:
        return self.sender.may_send()

    def on_ready(self, callback: Callable[[], None]) -> None:
        self.sender.on_ready(callback)
        self.sender.link.on_up(callback)


def _letter(message: OutgoingMessage) -> OutgoingLetter:
    properties = Properties(
        content_type=JSON,
        headers=dict(message.headers) or None,
        delivery_mode=PERSISTENT,
        priority=min(max(message.priority, 0), HIGHEST_PRIORITY),
        message_id=message.message_id,
    )
    return OutgoingLetter(QUEUES[message.kind], properties, message.body)
