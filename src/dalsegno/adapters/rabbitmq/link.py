"""A connection that is opened again whenever it is lost, and set up each time before it counts as ready."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable

from dalsegno.adapters.rabbitmq.amqp.address import Address
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.amqp.errors import ACCESS_REFUSED, NOT_ALLOWED, ConnectionLost
from dalsegno.errors import BadConfiguration, DalSegnoError

logger = logging.getLogger("dalsegno.rabbitmq")

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0
"""With the time to connect and to declare everything, less than three seconds after the broker is back."""


class Link:
    def __init__(self, address: Address, name: str, set_up: Callable[[Connection], Awaitable[None]]) -> None:
        self.address = address
        self.name = name
        self.connection: Connection | None = None
        """Set while the link is ready."""
        self.problem = f"not connected to RabbitMQ at {address.shown} yet"
        """Why it is not ready, as a sentence; empty while it is."""
        self.connections = 0
        """Connections opened so far."""
        self.on_down: Callable[[], None] = lambda: None
        self._set_up = set_up
        self._on_up: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Future[DalSegnoError | None] | None = None

    @property
    def is_ready(self) -> bool:
        return self.connection is not None

    def on_up(self, callback: Callable[[], None]) -> None:
        self._on_up.append(callback)

    def start(self) -> asyncio.Future[DalSegnoError | None]:
        """Connect in the background; return the result of the first attempt."""
        if self._first is None:
            loop = asyncio.get_running_loop()
            self._first = loop.create_future()
            self._task = loop.create_task(self._keep(), name=f"RabbitMQ {self.name}")
        return self._first

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.on_lost = lambda error: None
            await connection.close()

    async def _keep(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                connection, lost = await self._open()
            except DalSegnoError as error:
                self._failed(error)
                await asyncio.sleep(pause * random.uniform(0.7, 1.0))  # noqa: S311 - spreads reconnects
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            pause = FIRST_PAUSE
            self._ready(connection)
            reason = await lost
            self.connection = None
            self.problem = f"the connection to RabbitMQ at {self.address.shown} is lost: {reason}"
            logger.warning("%s (%s)", self.problem, self.name)
            self.on_down()

    async def _open(self) -> tuple[Connection, asyncio.Future[ConnectionLost]]:
        connection = await Connection.open(self.address, name=f"dalsegno {self.name}")
        lost: asyncio.Future[ConnectionLost] = asyncio.get_running_loop().create_future()
        connection.on_lost = lost.set_result
        try:
            await self._set_up(connection)
            if connection.lost is not None:
                raise connection.lost
        except BaseException:
            connection.abort("it could not be set up")
            await connection.closed()
            raise
        return connection, lost

    def _ready(self, connection: Connection) -> None:
        again = self.connections > 0 or (self._first is not None and self._first.done())
        self.connections += 1
        self.connection = connection
        self.problem = ""
        if again:
            logger.info("connected to RabbitMQ at %s again (%s)", self.address.shown, self.name)
        if self._first is not None and not self._first.done():
            self._first.set_result(None)
        for callback in self._on_up:
            callback()

    def _failed(self, error: DalSegnoError) -> None:
        if str(error) != self.problem:  # said once, however many attempts fail alike
            logger.warning("%s (%s)", error, self.name)
        self.problem = str(error)
        if self._first is not None and not self._first.done():
            self._first.set_result(_for_the_operator(error))


def _for_the_operator(error: DalSegnoError) -> DalSegnoError:
    """Return an error that no waiting cures as one of configuration."""
    if isinstance(error, ConnectionLost) and error.reply_code in {ACCESS_REFUSED, NOT_ALLOWED}:
        return BadConfiguration(
            f"{error}; check the user, the password and the vhost in the URL of the broker"
        )
    return error
