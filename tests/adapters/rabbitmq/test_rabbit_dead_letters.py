"""Dead letters on RabbitMQ, as people look at them, send them again or drop them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dalsegno.adapters.rabbitmq import RabbitDeadLetters, parse_address
from dalsegno.adapters.rabbitmq.amqp.frames import Properties
from dalsegno.adapters.rabbitmq.sender import OutgoingLetter, Sender
from dalsegno.adapters.rabbitmq.topology import DEAD, EXECUTION, Topology
from dalsegno.errors import Unavailable
from tests.waiting import come_about

HEADERS = {
    "x-dalsegno-reason": "no node 'b'",
    "x-dalsegno-code": "UNKNOWN_NODE",
    "x-dalsegno-at": "2026-11-19T10:00:00.000+00:00",
    "x-dalsegno-tries": 3,
    "mine": "kept",
}


@pytest.fixture
async def sender(rabbitmq_url: str) -> AsyncIterator[Sender]:
    made = Sender(parse_address(rabbitmq_url), Topology())
    assert await asyncio.shield(made.link.start()) is None
    yield made
    await made.close()
    await made.link.close()


async def put(sender: Sender, queue: str, body: bytes, **properties: Any) -> None:
    letter = OutgoingLetter(queue, Properties(**properties), body, exchange="")
    assert await sender.send_all([letter]) == 1


async def test_letters_are_listed_newest_first_and_stay_where_they_are(sender: Sender) -> None:
    dead = RabbitDeadLetters(sender)
    assert list(await dead.list(10)) == []
    await put(sender, DEAD, b"one", message_id="m1", headers=HEADERS)
    await put(sender, DEAD, b"two", message_id="m1")
    await put(sender, DEAD, b"three")

    for _ in range(2):
        third, second = await dead.list(2)
        assert (second.id, second.body, third.body) == ("m1#2", b"two", b"three")
        assert third.id.startswith("sha256-")
    first = await dead.get("m1")
    assert first is not None
    assert (first.body, first.reason, first.code, first.source) == (
        b"one",
        "no node 'b'",
        "UNKNOWN_NODE",
        EXECUTION,
    )
    assert (first.at, first.headers) == (1795082400.0, {"mine": "kept"})
    assert await dead.get("m2") is None


async def test_requeued_letter_begins_anew_with_its_identity(sender: Sender) -> None:
    dead = RabbitDeadLetters(sender)
    await put(sender, DEAD, b"one", message_id="m1", headers=HEADERS, priority=4)
    await put(sender, DEAD, b"two", message_id="m2")

    assert await dead.requeue("m1")
    assert not await dead.requeue("m1")

    assert [letter.id for letter in await dead.list(10)] == ["m2"]
    connection = sender.link.connection
    assert connection is not None
    message = await (await connection.channel()).get(EXECUTION)
    assert message is not None
    assert message.body == b"one"
    assert message.properties == Properties(message_id="m1", headers={"mine": "kept"}, priority=4)
    assert await dead.drop("m2")
    assert not await dead.drop("m2")
    assert list(await dead.list(10)) == []


async def test_expired_message_says_where_it_expired(sender: Sender) -> None:
    dead = RabbitDeadLetters(sender)
    await put(sender, EXECUTION, b"old", message_id="m1", expiration="1")

    async def is_dead() -> bool:
        return bool(await dead.list(1))

    await come_about(is_dead, "the expired message")
    [letter] = await dead.list(1)
    assert (letter.reason, letter.code) == ("expired in the queue 'workflow.execution'", "EXPIRED")
    assert letter.at > 0


async def test_while_rabbitmq_is_away_it_says_so() -> None:
    with pytest.raises(Unavailable, match="not connected"):
        await RabbitDeadLetters(Sender(parse_address("amqp://127.0.0.1:1"), Topology())).list(1)
