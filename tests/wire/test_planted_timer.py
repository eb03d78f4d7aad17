"""A timer that another program planted in Redis, on the stack with RabbitMQ: its statuses come out as of any run."""

from __future__ import annotations

import json
import time
from pathlib import Path

import redis.asyncio

from dalsegno.adapters.redis.timers import PAYLOADS, PROCESSING, TIMERS
from dalsegno.app import App
from tests.servers.sqlite import empty_sqlite
from tests.waiting import come_about
from tests.wire.documents import TRIGGER, edit, graph
from tests.wire.master import message
from tests.wire.test_over_rabbitmq import PlainClient

PAUSE = {"id": "pause", "type": "wait", "parameters": {"amount": 1, "unit": "hours"}}
DEFINITION = graph([TRIGGER, PAUSE, edit("after")], "start->pause", "pause->after")


async def test_planted_timer_is_told_of_by_statuses_and_one_completion(
    tmp_path: Path, rabbitmq_url: str, redis_url: str
) -> None:
    app = App(empty_sqlite(tmp_path / "store.db"), broker=rabbitmq_url, redis=redis_url)
    async with app.running(), redis.asyncio.from_url(redis_url) as client:
        await client.hset(PAYLOADS, "timer-1", json.dumps(message("planted-1", "pause", DEFINITION)).encode())
        await client.zadd(TIMERS, {"timer-1": int(time.time() * 1000)})
        master = await PlainClient.open(rabbitmq_url)

        async def is_completed() -> bool:
            await master.receive()
            return any("final_context" in told for told in master.received)

        await come_about(is_completed, "the completion is published")
        assert [(told.get("node_id"), told["status"]) for told in master.received] == [
            ("pause", "running"),
            ("pause", "success"),
            ("after", "running"),
            ("after", "success"),
            (None, "completed"),
        ]
        await master.connection.close()

        async def is_clean() -> bool:
            return not await client.exists(TIMERS, PAYLOADS, PROCESSING)

        await come_about(is_clean, "nothing of the timer stays")
        assert not [key async for key in client.scan_iter() if b"planted" in key]
