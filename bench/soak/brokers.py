"""The brokers of a soak: private servers, what waits in them, and programs of others that use them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from redis.asyncio import Redis

from bench.soak.work import FOREIGN
from dalsegno.adapters.rabbitmq.amqp.address import parse_address
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.amqp.errors import NOT_FOUND, ChannelClosed
from dalsegno.adapters.rabbitmq.topology import COMPLETION, DEAD, EXECUTION, NODE_STATUS
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer
from tests.servers.workspace import Workspace

EXAMPLES = Path(__file__).parents[2] / "examples" / "broker_workers"
QUEUES = (EXECUTION, NODE_STATUS, COMPLETION, DEAD, f"tasks.{FOREIGN}", "workflow.results")
STREAMS = (f"tasks:{FOREIGN}", "wf:stream:results", "wf:stream:dead", "wf:ready:default")
KEYS = "keys in Redis"
EMPTIED_WITHIN = 30.0
"""Seconds after the last execution has ended in which everything in queues and streams must be read."""


@dataclass(frozen=True, slots=True)
class Brokers:
    """``redis`` alone is the broker; beside RabbitMQ it is for other programs. Neither: the store brings the work."""

    redis: RedisServer | None = None
    rabbitmq: RabbitServer | None = None

    @property
    def environment(self) -> dict[str, str]:
        if self.redis is None:
            return {}
        broker = self.rabbitmq or self.redis
        return {
            "DALSEGNO_BROKER": broker.url,
            "DALSEGNO_REDIS": self.redis.url,
            "DALSEGNO_REMOTE": FOREIGN,
        }

    @property
    def pids(self) -> dict[str, int]:
        servers = {"Redis": self.redis, "RabbitMQ": self.rabbitmq}
        return {name: server.pid for name, server in servers.items() if server is not None}

    @property
    def foreign_workers(self) -> dict[str, list[str]]:
        """The arguments of Python for a worker of others on each broker, by its name."""
        servers = {"redis": self.redis, "rabbitmq": self.rabbitmq}
        return {
            f"{name} worker": [str(EXAMPLES / f"{name}_worker.py"), server.url, FOREIGN]
            for name, server in servers.items()
            if server is not None
        }

    async def depths(self) -> dict[str, float]:
        """Return how much waits in each queue and stream, and how many keys Redis has."""
        found: dict[str, float] = {}
        if self.rabbitmq is not None:
            connection = await Connection.open(parse_address(self.rabbitmq.url))
            found |= {queue: await _depth(connection, queue) for queue in QUEUES}
            await connection.close()
        if self.redis is not None:
            async with Redis.from_url(self.redis.url) as client:
                found |= {stream: float(await client.xlen(stream)) for stream in STREAMS}
                found[KEYS] = float(await client.dbsize())
        return found

    async def left(self) -> dict[str, float]:
        """Return what still waits some time after the last execution has ended."""
        until = asyncio.get_running_loop().time() + EMPTIED_WITHIN
        while True:
            found = {name: count for name, count in (await self.depths()).items() if count and name != KEYS}
            if not found or asyncio.get_running_loop().time() > until:
                return found
            await asyncio.sleep(0.5)


@contextmanager
def private_brokers(kind: str) -> Iterator[Brokers]:
    """``kind``: rabbitmq, redis or nothing."""
    with ExitStack() as running:
        if not kind:
            yield Brokers()
            return
        workspace = Workspace()
        running.callback(workspace.remove)
        folder = workspace.new_folder
        redis = running.enter_context(RedisServer(folder("redis"), appendfsync="everysec"))
        rabbitmq = None
        if kind == "rabbitmq":
            rabbitmq = running.enter_context(RabbitServer(folder("rabbitmq")))
        yield Brokers(redis, rabbitmq)


async def _depth(connection: Connection, queue: str) -> float:
    """The queue of tasks is declared when the first one is handed out."""
    try:
        channel = await connection.channel()
        messages, _ = await channel.depth(queue)
        await channel.close()
    except ChannelClosed as error:
        if error.reply_code != NOT_FOUND:
            raise
        return 0.0
    return float(messages)
