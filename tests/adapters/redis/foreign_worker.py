"""Redis beside a store, and a worker of another program that the test plays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from redis.asyncio import Redis

from dalsegno.adapters.redis import open_redis
from dalsegno.adapters.redis.tasks import RESULTS
from tests.adapters.broker_app import BrokerApp
from tests.waiting import come_about


def redis_app(store: str, url: str) -> BrokerApp:
    return BrokerApp(store, partial(open_redis, url))


class ForeignWorker:
    """Does what WIRE asks of a worker, one step at a time."""

    def __init__(self, redis: Redis, name: str = "w1", queue: str = "images") -> None:
        self.redis = redis
        self.name = name
        self.streams = [f"tasks:{queue}:high", f"tasks:{queue}", f"tasks:{queue}:low"]
        self.queue = queue
        self.entries: dict[str, tuple[str, bytes]] = {}

    async def live(self, concurrency: int = 2) -> None:
        fields: Mapping[Any, Any] = {"queues": self.queue, "concurrency": concurrency, "at": 1, "info": "{}"}
        await self.redis.hset(f"worker:{self.name}", mapping=dict(fields))

    async def die(self) -> None:
        """Its heartbeat has not come for fifteen seconds."""
        await self.redis.delete(f"worker:{self.name}")

    async def take(self) -> dict[str, Any]:
        found: list[dict[str, Any]] = []

        async def look() -> bool:
            task = await self.take_now()
            found.extend([task] if task is not None else [])
            return bool(found)

        await come_about(look, "a task is handed out")
        return found[0]

    async def take_now(self) -> dict[str, Any] | None:
        for stream in self.streams:
            if not await self.redis.exists(stream):
                continue
            groups = await self.redis.xinfo_groups(stream)
            if not groups:
                continue
            found = await self.redis.xreadgroup("workers", self.name, {stream: ">"}, count=1)
            for _, entries in found:
                for entry, fields in entries:
                    task: dict[str, Any] = json.loads(fields[b"task"])
                    self.entries[f"{task['id']}/{task['fence']}"] = (stream, entry)
                    return task
        return None

    async def complete(self, task: Mapping[str, Any], output: Any = None, **fields: str) -> None:
        await self.send(
            {
                "id": task["id"],
                "fence": str(task["fence"]),
                "success": "true",
                "output": json.dumps(output),
                "worker": self.name,
                **fields,
            }
        )
        stream, entry = self.entries[f"{task['id']}/{task['fence']}"]
        await self.redis.xack(stream, "workers", entry)

    async def send(self, fields: Mapping[str, str]) -> None:
        await self.redis.xadd(RESULTS, dict(fields))

    async def copies(self) -> int:
        return sum([await self.redis.xlen(stream) for stream in self.streams])

    async def results_left(self) -> int:
        return int(await self.redis.xlen(RESULTS))
