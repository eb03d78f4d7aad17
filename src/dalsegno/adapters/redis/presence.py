"""Workers as other programs see them: ``worker:<id>``, written every five seconds and gone fifteen seconds later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from dalsegno.adapters.redis.connection import RedisConnection
from dalsegno.ports.task_transport import OURS, ForeignWorker

PREFIX = "worker:"
BEAT_EVERY = 5.0
LASTS = 15
MOST_WORKERS = 10_000
SCANNED = 1000


class RedisPresence:
    """Shows the workers of this process."""

    def __init__(self, connection: RedisConnection) -> None:
        self.connection = connection
        self._describe: Callable[[], ForeignWorker] | None = None
        self._task: asyncio.Task[None] | None = None
        self._shown = ""
        connection.on_connect.append(self._beat)

    def show(self, describe: Callable[[], ForeignWorker]) -> None:
        """Show a worker of this process until the stack is closed."""
        self._describe = describe
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="presence")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._shown:
            self.connection.send("DEL", PREFIX + self._shown)

    async def _run(self) -> None:
        while True:
            self._beat()
            await asyncio.sleep(BEAT_EVERY)

    def _beat(self) -> None:
        if self._describe is None:
            return
        worker = self._describe()
        key = PREFIX + worker.id
        if self._shown and self._shown != worker.id:
            self.connection.send("DEL", PREFIX + self._shown)
        self._shown = worker.id
        fields = {
            "queues": ",".join(worker.queues),
            "concurrency": worker.concurrency,
            "at": int(worker.at * 1000),
            "info": msgspec.json.encode(worker.info),
        }
        self.connection.send("HSET", key, *(each for field in fields.items() for each in field))
        self.connection.send("EXPIRE", key, LASTS)


class WorkersOfOthers:
    """Finds the living workers of other programs. A key that was found to be one of ours is not read again."""

    def __init__(self, connection: RedisConnection) -> None:
        self.connection = connection
        self._ours: set[bytes] = set()

    async def living(self) -> list[ForeignWorker]:
        keys = await _keys(self.connection)
        self._ours.intersection_update(keys)
        found = await _read(self.connection, [key for key in keys if key not in self._ours])
        self._ours.update(key for key, worker in found.items() if OURS in worker.info)
        others = [worker for key, worker in found.items() if key not in self._ours]
        return sorted(others, key=lambda each: each.id)


async def _keys(connection: RedisConnection) -> list[bytes]:
    keys: list[bytes] = []
    async for key in connection.client.scan_iter(match=f"{PREFIX}*", count=SCANNED, _type="HASH"):
        keys.append(key)
        if len(keys) >= MOST_WORKERS:
            break
    return keys


async def _read(connection: RedisConnection, keys: Sequence[bytes]) -> dict[bytes, ForeignWorker]:
    if not keys:
        return {}
    async with connection.client.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.hgetall(key)
        read = await pipeline.execute()
    return {
        key: _worker(key.decode(errors="replace").removeprefix(PREFIX), fields)
        for key, fields in zip(keys, read, strict=True)
        if fields
    }


def _worker(id: str, fields: Mapping[bytes, bytes]) -> ForeignWorker:
    """Read what another program wrote, as far as it can be read."""
    text = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields.items()}
    queues = tuple(dict.fromkeys(name.strip() for name in text.get("queues", "").split(",") if name.strip()))
    return ForeignWorker(
        id, queues, int(_number(text.get("concurrency", ""))), _number(text.get("at", "")) / 1000, _info(text)
    )


def _number(text: str) -> float:
    try:
        return max(float(text), 0.0)
    except ValueError:
        return 0.0


def _info(text: Mapping[str, str]) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(text.get("info", "{}"))
    except (msgspec.MsgspecError, RecursionError):
        return {"info": text["info"]}
    return found if isinstance(found, dict) else {"info": found}
