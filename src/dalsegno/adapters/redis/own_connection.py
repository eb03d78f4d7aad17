"""A connection of the driver that one user keeps for itself.

A command over the driver's pool takes and gives back a connection, retries and measures itself each time, which costs
several times as much as the command. What is sent for each step, or waits for work, goes over a connection of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from dalsegno.adapters.redis.address import ANSWER_SECONDS, Address, close_client
from dalsegno.adapters.redis.errors import BROKEN

Command = tuple[Any, ...]


class OwnConnection:
    def __init__(self, address: Address) -> None:
        self._client: Redis = address.client(limits_answers=False)
        self._pool: Any = self._client.connection_pool
        self._connection: Any = None
        self._in_use = asyncio.Lock()

    async def call(self, commands: Sequence[Command], *, blocking: float = 0.0) -> list[Any]:
        """Send commands together and return their replies, the server's errors among them.

        ``blocking``: the longest time in seconds that they may block by themselves. After an error of the connection,
        or a cancellation, the next call opens another one.
        """
        async with self._in_use:
            try:
                async with asyncio.timeout(ANSWER_SECONDS + blocking):
                    connection = await self._usable()
                    await connection.send_packed_command(
                        connection.pack_commands(commands), check_health=False
                    )
                    return [await _reply(connection) for _ in commands]
            except BaseException:
                await self._discard()
                raise

    async def _usable(self) -> Any:
        """Return the connection. One on which something arrives while nothing is asked was closed by the server."""
        if self._connection is not None and await self._connection.can_read():
            await self._discard()
        if self._connection is None:
            self._connection = await self._pool.get_connection()
        return self._connection

    async def _discard(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*BROKEN):
                await connection.disconnect(nowait=True)
            await self._pool.release(connection)

    async def close(self) -> None:
        await self._discard()
        await close_client(self._client)


async def _reply(connection: Any) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error
