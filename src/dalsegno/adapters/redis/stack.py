"""A store's stack with Redis beside it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec

from dalsegno.adapters.neighbours import ChannelNeighbours, decode
from dalsegno.adapters.redis.broker import RedisBroker, RedisChannel
from dalsegno.adapters.redis.connection import RedisConnection
from dalsegno.adapters.redis.dead_letters import RedisDeadLetters
from dalsegno.adapters.redis.presence import RedisPresence
from dalsegno.adapters.redis.tasks import RedisTasks
from dalsegno.adapters.redis.timers import RedisTimers
from dalsegno.ports.stack import Stack

logger = logging.getLogger("dalsegno.redis")


async def open_redis(
    url: str, stack: Stack, *, name: str = "Redis", is_broker: bool = True, has_keys: bool = True
) -> Stack:
    """Return the stack with Redis. The store's own parts go on as they are while Redis is away.

    ``is_broker``: it brings work to workers and carries messages between processes. ``has_keys``: other programs find
    timers, tasks and workers there.
    """
    connection = RedisConnection(url, name)
    await connection.open()
    stack = replace(stack, servers=(*stack.servers, connection), close=_closing(stack, connection))
    if is_broker:
        stack = _with_broker(stack, connection)
    return _with_keys(stack, connection) if has_keys else stack


def _with_broker(stack: Stack, connection: RedisConnection) -> Stack:
    channel = RedisChannel(connection)
    broker = RedisBroker(stack.ledger, connection, channel)
    neighbours = ChannelNeighbours(stack.ledger, channel)

    def receive(data: bytes) -> None:
        try:
            message = decode(data)
        except (msgspec.MsgspecError, RecursionError):
            logger.warning("a message on the channel '%s' cannot be read and is ignored", connection.channel)
            return
        if message.sender != channel.name:
            broker.handle(message)
            neighbours.handle(message)

    connection.on_message.append(receive)
    connection.on_connect.append(neighbours.connected)
    if stack.watch is not None:
        stack.watch.on_commit(broker.look_again)
    before = stack.close

    async def close() -> None:
        try:
            await broker.close()
        finally:
            await before()

    return replace(stack, broker=broker, neighbours=neighbours, close=close)


def _with_keys(stack: Stack, connection: RedisConnection) -> Stack:
    presence = RedisPresence(connection)
    dead_letters = RedisDeadLetters(connection)
    timers = RedisTimers(connection, dead_letters)
    before = stack.close

    async def close() -> None:
        try:
            await timers.stop()
            await presence.close()
        finally:
            await before()

    return replace(
        stack,
        presence=(*stack.presence, presence),
        sources=(*stack.sources, timers),
        dead_letters=(*stack.dead_letters, dead_letters),
        task_transports=(*stack.task_transports, RedisTasks(connection, dead_letters)),
        close=close,
    )


def _closing(stack: Stack, connection: RedisConnection) -> Callable[[], Awaitable[None]]:
    async def close() -> None:
        try:
            await connection.close()
        finally:
            await stack.close()

    return close
