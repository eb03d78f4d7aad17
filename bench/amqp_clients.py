"""CPU of one persistent, confirmed publish: our client of AMQP beside others that are installed.

    pip install pika aio-pika aiormq
    PYTHONPATH=src python bench/amqp_clients.py amqp://guest:guest@127.0.0.1:5672/

Each publishes in rounds: a number of messages at once, then all their confirmations. The queue is deleted at the end.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import time
from collections.abc import Awaitable, Callable

from dalsegno.adapters.rabbitmq.amqp import frames
from dalsegno.adapters.rabbitmq.amqp.address import parse_address
from dalsegno.adapters.rabbitmq.amqp.connection import Connection

QUEUE = "bench.amqp-clients"
BODY = b"x" * 400
ROUND = 200
ROUNDS = 25


async def ours(url: str) -> Callable[[], Awaitable[None]]:
    connection = await Connection.open(parse_address(url))
    channel = await connection.channel()
    await channel.confirm()
    await channel.call(frames.QUEUE_DELETE, queue=QUEUE)
    await channel.declare_queue(QUEUE)
    properties = frames.Properties(delivery_mode=frames.PERSISTENT, message_id="m", priority=1)

    async def round_of_messages() -> None:
        left, over = ROUND, asyncio.get_running_loop().create_future()

        def done(outcome: str) -> None:
            nonlocal left
            left -= 1
            assert outcome == "confirmed"
            if not left:
                over.set_result(None)

        for _ in range(ROUND):
            channel.publish("", QUEUE, properties, BODY, done)
        await over

    return round_of_messages


async def aio_pika(url: str) -> Callable[[], Awaitable[None]]:
    import aio_pika as library  # noqa: PLC0415 - only if it is installed

    connection = await library.connect(url)
    channel = await connection.channel(publisher_confirms=True)

    async def round_of_messages() -> None:
        exchange = channel.default_exchange
        message = library.Message(
            BODY, delivery_mode=library.DeliveryMode.PERSISTENT, message_id="m", priority=1
        )
        await asyncio.gather(*(exchange.publish(message, QUEUE) for _ in range(ROUND)))

    return round_of_messages


async def aiormq(url: str) -> Callable[[], Awaitable[None]]:
    import aiormq as library  # noqa: PLC0415

    connection = await library.connect(url)
    channel = await connection.channel(publisher_confirms=True)
    properties = library.spec.Basic.Properties(delivery_mode=2, message_id="m", priority=1)

    async def round_of_messages() -> None:
        await asyncio.gather(
            *(
                channel.basic_publish(BODY, routing_key=QUEUE, properties=properties, mandatory=True)
                for _ in range(ROUND)
            )
        )

    return round_of_messages


async def pika(url: str) -> Callable[[], Awaitable[None]]:
    import pika as library  # noqa: PLC0415
    from pika.adapters.asyncio_connection import AsyncioConnection  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    confirmed, wanted, waiting = 0, 0, loop.create_future()

    def answered(frame: library.frame.Method) -> None:
        nonlocal confirmed
        tag = frame.method.delivery_tag
        confirmed = max(confirmed, tag) if frame.method.multiple else confirmed + 1
        if confirmed >= wanted and not waiting.done():
            waiting.set_result(None)

    def opened(connection: AsyncioConnection) -> None:
        connection.channel(
            on_open_callback=lambda channel: channel.confirm_delivery(
                answered, lambda _: ready.set_result(channel)
            )
        )

    AsyncioConnection(library.URLParameters(url), on_open_callback=opened)
    channel = await ready
    properties = library.BasicProperties(delivery_mode=2, message_id="m", priority=1)

    async def round_of_messages() -> None:
        nonlocal wanted, waiting
        wanted, waiting = wanted + ROUND, loop.create_future()
        for _ in range(ROUND):
            channel.basic_publish("", QUEUE, BODY, properties, mandatory=True)
        await waiting

    return round_of_messages


async def measured(
    make: Callable[[str], Awaitable[Callable[[], Awaitable[None]]]], url: str
) -> tuple[float, float]:
    """Return the microseconds of CPU, and of time, for one message."""
    run = await make(url)
    await run()
    cpu, began = time.process_time(), time.perf_counter()
    for _ in range(ROUNDS):
        await run()
    messages = ROUND * ROUNDS / 1e6
    return (time.process_time() - cpu) / messages, (time.perf_counter() - began) / messages


async def main(url: str) -> None:
    for make in (ours, pika, aiormq, aio_pika):
        if make is not ours and importlib.util.find_spec(make.__name__) is None:
            continue
        cpu, seconds = await measured(make, url)
        print(f"{make.__name__:10} {cpu:7.1f} µs of CPU {seconds:8.1f} µs in all")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
