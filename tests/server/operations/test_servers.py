"""Servers besides the store's, in health and metrics: they are named when they are away, and the server stays ready."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from dalsegno.app import App
from tests.server.operations.test_metrics import scrape
from tests.servers.redis import RedisServer
from tests.servers.sqlite import empty_sqlite


@pytest.fixture
def app(tmp_path: Path, private_redis: RedisServer) -> App:
    return App(empty_sqlite(tmp_path / "server.db"), broker=private_redis.url)


async def test_redis_that_goes_away_and_comes_back(
    http: httpx.AsyncClient, app: App, private_redis: RedisServer
) -> None:
    assert await state(http) == ("ok", None, 1)
    private_redis.kill()
    await becomes(app, connected=False)
    assert await state(http) == ("degraded", "away: Redis", 0)
    private_redis.start()
    await becomes(app, connected=True)
    assert await state(http) == ("ok", None, 1)


async def test_redis_tells_of_planted_timers_and_dead_letters(
    http: httpx.AsyncClient, private_redis: RedisServer
) -> None:
    for command in ("ZADD scheduler:timers 9999999999999 a", "XADD wf:stream:dead * body x"):
        assert not private_redis.ask(command).startswith("-")
    found = await scrape(http)
    figures = {name[1]: value for name, value in found.items() if name[0] == "dalsegno_server_figure"}
    assert figures == {"timers_planted": 1, "timers_late": 0, "timers_in_hand": 0, "dead_letters": 1}


async def state(http: httpx.AsyncClient) -> tuple[str, str | None, float]:
    """The part in health, the detail of readiness, and the metric."""
    parts = (await http.get("/v1/health")).json()["parts"]
    part = next(part for part in parts if part["name"] == "Redis")
    ready = await http.get("/v1/health/ready")
    assert ready.status_code == 200
    return part["status"], ready.json()["detail"], (await scrape(http))["dalsegno_server_up", "Redis"]


async def becomes(app: App, *, connected: bool) -> None:
    [redis] = app.engine.stack.servers
    async with asyncio.timeout(30):
        while redis.connected() is not connected:  # noqa: ASYNC110 - health is looked at, not announced
            await asyncio.sleep(0.01)
