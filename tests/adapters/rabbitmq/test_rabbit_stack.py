"""The whole stack on RabbitMQ as a master outside sees it: it knows the queues and the messages, nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dalsegno.adapters.rabbitmq import open_broker
from dalsegno.adapters.rabbitmq.amqp.address import parse_address
from dalsegno.adapters.rabbitmq.amqp.channel import Channel, Message
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.amqp.frames import PERSISTENT, Properties
from dalsegno.app import App
from dalsegno.core.wire.execution_message import message_schema
from dalsegno.engine.engine import Engine
from dalsegno.engine.settings import EngineSettings
from dalsegno.errors import Unavailable
from dalsegno.graph.json_schema.shape import check_input
from dalsegno.wiring import open_stack
from tests.servers import RabbitServer
from tests.servers.sqlite import empty_sqlite
from tests.waiting import come_about
from tests.wire.documents import LINEAR, edit, graph
from tests.wire.master import message

PATIENCE = 20.0
EXECUTION, STATUS, COMPLETION, DEAD = (
    "workflow.execution",
    "workflow.node.status",
    "workflow.completion",
    "workflow.execution.dead",
)
PAUSE = graph(
    [
        {"id": "start", "type": "ManualTrigger", "trigger": True},
        {"id": "pause", "type": "wait", "parameters": {"amount": 1, "unit": "seconds"}},
        edit("z"),
    ],
    "start->pause",
    "pause->z",
)


class Master:
    """A program with a connection to RabbitMQ."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.seen: list[tuple[str, Message, dict[str, Any]]] = []
        """What was received, in order: the queue, the message and its body."""

    @classmethod
    async def connect(cls, url: str) -> Master:
        connection = await Connection.open(parse_address(url))
        try:
            channel = await connection.channel()
            await channel.confirm()
            master = cls(channel)
            for queue in (STATUS, COMPLETION):
                await channel.consume(queue, queue, partial(master._receive, queue))
        except Unavailable:
            await connection.close()
            raise
        return master

    def _receive(self, queue: str, message: Message) -> None:
        self.channel.ack(message.tag)
        self.seen.append((queue, message, json.loads(message.body)))

    @classmethod
    async def connect_again(cls, before: Master, url: str) -> Master:
        """Connect as soon as RabbitMQ is there and its queues are declared."""
        found: list[Master] = []

        async def look() -> bool:
            try:
                found.append(await cls.connect(url))
            except Unavailable:
                return False
            return True

        await come_about(look, "RabbitMQ", 60)
        found[0].seen = before.seen
        return found[0]

    async def send(self, body: dict[str, Any] | bytes, message_id: str | None = None) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        properties = Properties(message_id=message_id, delivery_mode=PERSISTENT)
        self.channel.publish("workflows", EXECUTION, properties, raw, done.set_result)
        assert await asyncio.wait_for(done, PATIENCE) == "confirmed"

    async def completion(self, execution: str) -> dict[str, Any]:
        """Return the completion; all statuses came before it, and everything fits its schema."""
        await come_about(lambda: self._of(execution, COMPLETION), f"the completion of {execution}", PATIENCE)
        [completion] = self._of(execution, COMPLETION)
        for queue, _, body in self.seen:
            schema = message_schema("node-status" if queue == STATUS else "completion")
            assert check_input(schema, body) == []
        assert self.seen[-1][2] is completion or self.seen[-1][2]["execution_id"] != execution
        return completion

    def _of(self, execution: str, queue: str) -> list[dict[str, Any]]:
        return [body for where, _, body in self.seen if where == queue and body["execution_id"] == execution]

    def told(self, execution: str) -> list[tuple[str, str]]:
        return [(body["node_id"], body["status"]) for body in self._of(execution, STATUS)]

    async def dead(self) -> Message:
        found: list[Message] = []

        async def look() -> bool:
            letter = await self.channel.get(DEAD)
            if letter is not None:
                self.channel.ack(letter.tag)
                found.append(letter)
            return letter is not None

        await come_about(look, "a dead letter", PATIENCE)
        return found[0]


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return empty_sqlite(tmp_path / "store.db")
    found: str = request.getfixturevalue("empty_postgres")()
    return found


@pytest.fixture
async def engine(store_url: str, rabbitmq_url: str) -> AsyncIterator[Engine]:
    app = App(store_url)
    stack = await open_broker(rabbitmq_url, await open_stack(store_url))
    settings = EngineSettings(grace=1.0, heavy_processes=0)
    engine = Engine(stack, app.registry, app.services(), settings, app.workflows)
    await engine.start()
    yield engine
    await engine.stop()


@pytest.fixture
async def master(engine: Engine, rabbitmq_url: str) -> AsyncIterator[Master]:
    connected = await Master.connect(rabbitmq_url)
    yield connected
    await connected.channel.connection.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
async def test_rabbitmq_dies_and_everything_ends_once(
    engine: Engine, master: Master, rabbitmq_server: RabbitServer, rabbitmq_url: str
) -> None:
    """What it has confirmed is there again, and completions follow; statuses that lay in it are lost with it."""
    names = [f"e{number}" for number in range(30)]
    for name in names:
        await master.send(message(name, "start", PAUSE), name)
    rabbitmq_server.kill()
    rabbitmq_server.start()
    again = await Master.connect_again(master, rabbitmq_url)

    def ended() -> set[str]:
        return {body["execution_id"] for queue, _, body in again.seen if queue == COMPLETION}

    await come_about(lambda: ended() == set(names), "the completions", 30)
    completions = {
        (message.properties.message_id, body["execution_id"])
        for queue, message, body in again.seen
        if queue == COMPLETION
    }
    assert len(completions) == len(names)
    await again.channel.connection.close()  # type: ignore[attr-defined]


async def test_process_that_only_starts_executions_leaves_their_statuses_to_others(
    store_url: str, rabbitmq_url: str
) -> None:
    """It must not wait at its end for what a worker publishes."""
    app = App(store_url, broker=rabbitmq_url)
    await app.adeploy({**LINEAR, "name": "linear"})
    await app.astart("linear", n=1)
    async with asyncio.timeout(EngineSettings().grace / 2):
        await app.aclose()
