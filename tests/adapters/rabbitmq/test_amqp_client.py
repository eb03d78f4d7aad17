"""The client on a real RabbitMQ: confirmations, returns, consumers, alarms, and servers that die."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from dalsegno.adapters.rabbitmq.amqp.address import parse_address
from dalsegno.adapters.rabbitmq.amqp.channel import Channel, Message, Outcome
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.amqp.errors import ChannelClosed, ConnectionLost
from dalsegno.adapters.rabbitmq.amqp.frames import PERSISTENT, Properties
from dalsegno.engine.process import run
from tests.servers import RabbitServer

PATIENCE = 20.0


@pytest.fixture
async def connection(rabbitmq_url: str) -> AsyncIterator[Connection]:
    opened = await Connection.open(parse_address(rabbitmq_url))
    yield opened
    await opened.close()


@pytest.fixture
async def channel(connection: Connection) -> Channel:
    opened = await connection.channel()
    await opened.confirm()
    return opened


def publish(
    channel: Channel, body: bytes, *, key: str = "q", message_id: str = "m"
) -> asyncio.Future[Outcome]:
    done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    properties = Properties(message_id=message_id, delivery_mode=PERSISTENT)
    channel.publish("", key, properties, body, done.set_result)
    return done


async def outcome_of(done: asyncio.Future[Outcome]) -> Outcome:
    return await asyncio.wait_for(done, PATIENCE)


async def test_messages_are_confirmed_and_delivered_in_order(channel: Channel) -> None:
    await channel.declare_queue("q")
    received: asyncio.Queue[Message] = asyncio.Queue()
    bodies = [bytes([number % 256]) * size for number, size in enumerate((0, 1, 131_064, 131_065, 400_000))]

    outcomes = [publish(channel, body) for body in bodies]
    await channel.consume("q", "c", received.put_nowait)

    assert [await outcome_of(each) for each in outcomes] == ["confirmed"] * len(bodies)
    messages = [await asyncio.wait_for(received.get(), PATIENCE) for _ in bodies]
    assert [message.body for message in messages] == bodies
    assert messages[0].properties == Properties(message_id="m", delivery_mode=PERSISTENT)
    channel.ack(messages[-1].tag, multiple=True)
    await channel.cancel("c")
    assert await channel.depth("q") == (0, 0)


async def test_thousands_of_confirmations_are_counted_right(channel: Channel) -> None:
    await channel.declare_queue("q")
    outcomes = [
        publish(channel, b"x", key="q" if number % 10 else "nowhere", message_id=str(number))
        for number in range(3000)
    ]
    found = [await outcome_of(each) for each in outcomes]
    assert [number for number, outcome in enumerate(found) if outcome == "returned"] == [*range(0, 3000, 10)]
    assert set(found) == {"confirmed", "returned"}
    assert await channel.depth("q") == (2700, 0)
    assert channel.unconfirmed == 0


async def test_message_that_the_queue_refuses_is_no_success(channel: Channel) -> None:
    await channel.declare_queue("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    assert await outcome_of(publish(channel, b"1")) == "confirmed"
    assert await outcome_of(publish(channel, b"2")) == "refused"


async def test_prefetch_and_requeue(channel: Channel) -> None:
    await channel.declare_queue("q")
    for number in range(5):
        publish(channel, b"%d" % number)
    received: asyncio.Queue[Message] = asyncio.Queue()
    channel.prefetch(2)
    await channel.consume("q", "c", received.put_nowait)
    first, second = [await asyncio.wait_for(received.get(), PATIENCE) for _ in range(2)]
    assert received.empty()
    assert {first.delivery.redelivered, second.delivery.redelivered} == {False}
    channel.nack(first.tag)
    channel.prefetch(10)
    others = [await asyncio.wait_for(received.get(), PATIENCE) for _ in range(4)]
    assert {message.body: message.delivery.redelivered for message in others} == {
        b"0": True,
        b"2": False,
        b"3": False,
        b"4": False,
    }


async def test_refused_call_closes_its_channel_only_and_says_why(
    connection: Connection, channel: Channel
) -> None:
    await channel.declare_queue("q", arguments={"x-max-priority": 10})
    other = await connection.channel()
    with pytest.raises(ChannelClosed, match="x-max-priority") as raised:
        await other.declare_queue("q")
    assert raised.value.reply_code == 406
    with pytest.raises(ChannelClosed):
        await other.declare_queue("q2")
    assert await outcome_of(publish(channel, b"x")) == "confirmed"


async def test_get_and_empty_queue(channel: Channel) -> None:
    await channel.declare_queue("q")
    assert await channel.get("q") is None
    await outcome_of(publish(channel, b"x"))
    message = await channel.get("q")
    assert message is not None
    assert message.body == b"x"
    channel.ack(message.tag)
    assert await channel.get("q") is None


async def test_consumer_learns_that_its_queue_was_deleted(connection: Connection, channel: Channel) -> None:
    from dalsegno.adapters.rabbitmq.amqp import frames

    await channel.declare_queue("q")
    cancelled: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    channel.on_cancelled = cancelled.set_result
    await channel.consume("q", "c", lambda message: None)
    other = await connection.channel()
    await other.call(frames.QUEUE_DELETE, queue="q")
    assert await asyncio.wait_for(cancelled, PATIENCE) == "c"


async def test_wrong_password_vhost_and_port_say_so(rabbitmq_server: RabbitServer, rabbitmq_url: str) -> None:
    for url, reason in (
        (rabbitmq_server.url_of("/", password="secret-word"), "ACCESS_REFUSED"),
        (rabbitmq_server.url_of("nowhere"), "vhost nowhere not found"),
        ("amqp://guest:secret-word@127.0.0.1:1", "cannot be reached"),
    ):
        with pytest.raises(ConnectionLost, match=reason) as raised:
            await Connection.open(parse_address(url))
        assert "secret-word" not in str(raised.value)


async def test_something_that_is_no_broker_is_recognised() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        try:
            await reader.read()
        except ConnectionError:
            pass
        finally:
            writer.close()
            over.set()

    over = asyncio.Event()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        address = parse_address(f"amqp://127.0.0.1:{port}?connection_timeout=2")
        with pytest.raises(ConnectionLost, match="does not speak AMQP"):
            await Connection.open(address)
        await asyncio.wait_for(over.wait(), PATIENCE)


async def test_operator_closes_the_connection(rabbitmq_server: RabbitServer, rabbitmq_url: str) -> None:
    connection = await Connection.open(parse_address(rabbitmq_url))
    lost: asyncio.Future[ConnectionLost] = asyncio.get_running_loop().create_future()
    connection.on_lost = lost.set_result
    channel = await connection.channel()
    rabbitmq_server.close_connections(connection.address.vhost)
    error = await asyncio.wait_for(lost, PATIENCE)
    assert (error.reply_code, "closed by a test" in str(error)) == (320, True)
    with pytest.raises(ConnectionLost):
        await channel.declare_queue("q")


async def test_alarm_is_told_and_messages_wait_until_it_is_over(
    rabbitmq_server: RabbitServer, connection: Connection, channel: Channel
) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    connection.on_blocked = told.put_nowait
    await channel.declare_queue("q")
    rabbitmq_server.raise_memory_alarm()
    try:
        while (
            not connection.blocked
        ):  # the alarm reaches the connection a moment later, and blocks what publishes then
            waiting = publish(channel, b"x")
            await asyncio.wait({waiting}, timeout=0.2)
        assert "memory" in await asyncio.wait_for(told.get(), PATIENCE)
        waiting = publish(channel, b"y")
        await asyncio.wait({waiting}, timeout=0.1)
        assert not waiting.done()
    finally:
        rabbitmq_server.clear_memory_alarm()
    assert await asyncio.wait_for(told.get(), PATIENCE) == ""
    assert await outcome_of(waiting) == "confirmed"


async def test_killed_server_keeps_what_it_has_confirmed(
    rabbitmq_server: RabbitServer, rabbitmq_url: str
) -> None:
    address = parse_address(rabbitmq_url)
    connection = await Connection.open(address)
    channel = await connection.channel()
    await channel.confirm()
    await channel.declare_queue("q")
    outcomes = [publish(channel, b"%d" % number) for number in range(200)]
    assert await outcome_of(outcomes[-1]) == "confirmed"
    rabbitmq_server.suspend()
    unanswered = asyncio.ensure_future(channel.depth("q"))
    await asyncio.sleep(0)

    rabbitmq_server.kill()

    with pytest.raises(ConnectionLost):
        await asyncio.wait_for(unanswered, PATIENCE)
    assert await outcome_of(publish(channel, b"late")) == "lost"
    with pytest.raises(ConnectionLost, match="cannot be reached"):
        await Connection.open(address)
    rabbitmq_server.start()
    connection = await Connection.open(address)
    assert await (await connection.channel()).depth("q") == (200, 0)
    await connection.close()


async def test_server_that_is_stopped_is_noticed_by_its_silence(
    rabbitmq_server: RabbitServer, rabbitmq_url: str
) -> None:
    address = parse_address(rabbitmq_url + "?heartbeat=1&connection_timeout=1")
    connection = await Connection.open(address)
    lost: asyncio.Future[ConnectionLost] = asyncio.get_running_loop().create_future()
    connection.on_lost = lost.set_result
    rabbitmq_server.suspend()
    try:
        assert "no sign of life" in str(await asyncio.wait_for(lost, PATIENCE))
        with pytest.raises(ConnectionLost, match="did not answer"):
            await Connection.open(address)
    finally:
        rabbitmq_server.resume()
    connection = await Connection.open(parse_address(rabbitmq_url))
    await connection.close()


def test_processes_of_our_own_connect_on_uvloop(rabbitmq_url: str) -> None:
    async def connect() -> None:
        connection = await Connection.open(parse_address(rabbitmq_url))
        await connection.close()

    run(connect())
