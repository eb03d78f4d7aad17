"""Timers that another program plants in Redis for executions that nothing else starts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Self

from redis import Redis

from dalsegno.adapters.redis.timers import PAYLOADS, PROCESSING, TIMERS
from tests.chaos import mixed_workload as mixed
from tests.servers.process import wait_until

COUNT = 500
PATIENCE = 120.0


class PlantedTimers:
    def __init__(self, url: str) -> None:
        self.executions: list[str] = []
        self._redis = Redis.from_url(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._redis.close()

    def plant(self) -> None:
        """The payloads first, then the times: all are due at once."""
        planted = [
            f"planted-{number}" for number in range(len(self.executions), len(self.executions) + COUNT)
        ]
        with self._redis.pipeline() as pipeline:
            for number, execution in enumerate(planted):
                pipeline.hset(PAYLOADS, execution, json.dumps(message(execution, number)))
            pipeline.execute()
        self._redis.zadd(TIMERS, dict.fromkeys(planted, int(time.time() * 1000)))
        self.executions += planted

    def wait_for_claim(self, tend: Callable[[], None]) -> int:
        """Return how many are claimed and not handed over, as soon as there are any."""
        claimed = 0
        end = time.monotonic() + PATIENCE
        while not claimed:
            assert time.monotonic() < end, "no scheduler claims planted timers"
            tend()
            claimed = int(self._redis.zcard(PROCESSING))
        return claimed

    def wait_for_all(self, tend: Callable[[], None]) -> float:
        """Return the seconds until all are handed over."""
        began = time.monotonic()

        def is_clean() -> bool:
            tend()
            return not self._redis.exists(TIMERS, PAYLOADS, PROCESSING)

        wait_until(is_clean, seconds=PATIENCE, what="planted timers to be handed over")
        return time.monotonic() - began


def message(execution: str, number: int) -> dict[str, object]:
    """What a master froze when the execution came to its wait node."""
    return {
        "workflow_id": "planted",
        "execution_id": execution,
        "current_node": "pause",
        "workflow_definition": mixed.PAUSED,
        "accumulated_context": {"$trigger": {"n": number}},
        "lineage_stack": [],
    }
