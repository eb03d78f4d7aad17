"""A store with RabbitMQ, and a worker of another program that the test plays."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any

from dalsegno.adapters.rabbitmq import open_broker
from dalsegno.adapters.rabbitmq.amqp.address import parse_address
from dalsegno.adapters.rabbitmq.amqp.channel import Channel, Message
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.amqp.frames import PERSISTENT, Properties
from tests.adapters.broker_app import BrokerApp
from tests.waiting import come_about

RESULTS = "workflow.results"


def rabbit_app(store: str, url: str) -> BrokerApp:
    return BrokerApp(store, partial(open_broker, url))


class ForeignWorker:
    """Takes one task at a time. A task that was given to another worker before is reported as lost."""

    def __init__(self, connection: Connection, channel: Channel) -> None:
        self.connection = connection
        self.channel = channel
        self.waiting: deque[Message] = deque()
        self.taken: dict[str, Message] = {}

    @classmethod
    async def connect(cls, url: str, queue: str = "images", prefetch: int = 1) -> ForeignWorker:
        connection = await Connection.open(parse_address(url))
        channel = await connection.channel()
        await channel.confirm()
        await channel.declare_queue(f"tasks.{queue}", arguments={"x-max-priority": 10})
        channel.prefetch(prefetch)
        worker = cls(connection, channel)
        await channel.consume(f"tasks.{queue}", "worker", worker.waiting.append)
        return worker

    async def die(self) -> None:
        self.connection.abort("killed")
        await self.connection.closed()

    async def take(self) -> dict[str, Any]:
        while True:
            await come_about(lambda: self.waiting, "a task is handed out", 20.0)
            message = self.waiting.popleft()
            task: dict[str, Any] = json.loads(message.body)
            self.taken[f"{task['id']}/{task['fence']}"] = message
            if not message.delivery.redelivered:
                return task
            error = {"code": "WORKER_LOST", "message": "its first worker is gone"}
            await self.answer(task, success=False, error=error)

    async def answer(self, task: Mapping[str, Any], **fields: Any) -> None:
        await self.send({"id": task["id"], "fence": task["fence"], **fields})
        message = self.taken[f"{task['id']}/{task['fence']}"]
        self.channel.ack(message.tag)

    async def complete(self, task: Mapping[str, Any], output: Any = None) -> None:
        await self.answer(task, success=True, output=output)

    async def send(self, body: Any, queue: str = RESULTS) -> None:
        """Send as soon as the queue is there: the orchestrator declares it when it has connected."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        properties = Properties(delivery_mode=PERSISTENT, message_id="result-1")

        async def sent() -> bool:
            answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self.channel.publish("workflows", queue, properties, data, answer.set_result)
            return await answer == "confirmed"

        await come_about(sent, f"{queue} takes a message", 20.0)

    async def depth(self, queue: str) -> int:
        return (await self.channel.depth(queue))[0]
