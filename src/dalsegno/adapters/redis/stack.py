"""A store's stack with Redis beside it."""

from __future__ import annotations

from dataclasses import replace

from dalsegno.adapters.redis.connection import RedisConnection
from dalsegno.ports.stack import Stack


async def open_redis(url: str, stack: Stack) -> Stack:
    """Return the stack with Redis. The store's own parts go on as they are while Redis is away."""
    connection = RedisConnection(url)
    await connection.open()

    async def close() -> None:
        try:
            await connection.close()
        finally:
            await stack.close()

    return replace(stack, servers=(*stack.servers, connection), close=close)
