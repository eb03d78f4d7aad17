"""A plain client on a real RabbitMQ that knows only queues and messages, and an engine behind them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno.adapters.rabbitmq import open_broker, parse_address
from dalsegno.adapters.rabbitmq.amqp.channel import Channel, Message
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.amqp.frames import Properties
from dalsegno.app import App
from dalsegno.engine.engine import Engine
from dalsegno.engine.settings import EngineSettings
from dalsegno.wiring import open_stack
from tests.servers.sqlite import empty_sqlite
from tests.waiting import come_about
from tests.wire.documents import LINEAR, WAIT
from tests.wire.master import message

PATIENCE = 20.0
EXECUTION, DEAD = "workflow.execution", "workflow.execution.dead"


class PlainClient:
    """Publishes to the exchange, and collects what arrives in the queues of a master."""

    def __init__(self, connection: Connection, channel: Channel) -> None:
        self.connection = connection
        self.channel = channel
        self.received: list[dict[str, Any]] = []

    @classmethod
    async def open(cls, url: str) -> PlainClient:
        connection = await Connection.open(parse_address(url))
        return cls(connection, await connection.channel())

    def send(self, body: dict[str, Any] | bytes, **properties: Any) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.channel.publish("workflows", EXECUTION, Properties(**properties), raw, lambda _outcome: None)

    async def receive(self) -> None:
        """Take what is there, statuses before completions."""
        for queue in ("workflow.node.status", "workflow.completion"):
            while (found := await self.channel.get(queue)) is not None:
                self.channel.ack(found.tag)
                told = json.loads(found.body) | {"id": found.properties.message_id, "queue": queue}
                self.received.append(told)

    async def completion(self, execution: str) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            ended = (told for told in self.received if "final_context" in told)
            return [told for told in ended if told["execution_id"] == execution]

        async def look() -> bool:
            await self.receive()
            return bool(found())

        await come_about(look, f"the completion of {execution}", PATIENCE)
        await self.receive()  # every status was confirmed before the completion was sent
        return found()[0]

    async def dead(self) -> Message:
        found: list[Message] = []

        async def look() -> bool:
            letter = await self.channel.get(DEAD)
            found.extend([letter] if letter is not None else [])
            return bool(found)

        await come_about(look, "a dead letter", PATIENCE)
        self.channel.ack(found[0].tag)
        return found[0]

    def told(self, execution: str) -> list[tuple[str, str]]:
        return [
            (told["node_id"], told["status"])
            for told in self.received
            if told["execution_id"] == execution and "node_id" in told
        ]


@pytest.fixture
async def client(rabbitmq_url: str, tmp_path: Path) -> AsyncIterator[PlainClient]:
    app = App("memory:")
    stack = await open_broker(rabbitmq_url, await open_stack(empty_sqlite(tmp_path / "store.db")))
    engine = Engine(stack, app.registry, app.services(), EngineSettings(heavy_processes=0, grace=1.0))
    await engine.start()
    found = await PlainClient.open(rabbitmq_url)
    yield found
    await found.connection.close()
    await engine.stop()


async def test_what_the_wait_calls_off_is_cancelled_before_the_completion(client: PlainClient) -> None:
    short = json.loads(json.dumps(WAIT)) | {"timeout": "300ms"}
    client.send(message("e1", "start", short))
    done = await client.completion("e1")
    assert (done["status"], done["error"]["code"]) == ("failed", "TIMEOUT")
    assert client.told("e1") == [("pause", "waiting"), ("pause", "cancelled")]


def nested(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"a": found}
    return found


async def test_poisonous_messages_are_dead_letters_and_stop_nothing(client: PlainClient) -> None:
    """Deep nesting, headers that fill a frame and are nested too deeply, and bodies that are too large."""
    client.send(b'{"more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", message_id="deep")
    client.send(b"no json", message_id="headers", headers={"x": "y" * 130_000})
    client.send(b"{}", message_id="nested", headers=nested(60))
    client.send(b" " * (10 * 1024 * 1024 + 1), message_id="large")
    found = {}
    for _ in range(4):
        letter = await client.dead()
        content = letter.content
        found[next(name for name in ("deep", "headers", "nested", "large") if name.encode() in content)] = (
            letter
        )
    assert len(found) == 4
    assert len(found["large"].body) > 10 * 1024 * 1024
    client.send(message("e1", "start", LINEAR))
    await client.completion("e1")
