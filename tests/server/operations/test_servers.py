"""Servers besides the store's, in health and metrics: they are named when they are away, and the server stays ready."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx
import pytest

from dalsegno.app import App
from dalsegno.server.application import create_application
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
    a_minute_ago = round((time.time() - 60) * 1000)
    commands = (
        "ZADD scheduler:timers 9999999999999 a",
        f"XADD wf:stream:dead {a_minute_ago}-0 body x",
        "XADD wf:stream:dead * body x",
    )
    for command in commands:
        assert not private_redis.ask(command).startswith("-")
    found = await scrape(http)
    figures = {name[1]: value for name, value in found.items() if name[0] == "dalsegno_server_figure"}
    assert figures == {"timers_late": 0, "timers_in_hand": 0}
    # The labels are kind, place and server.
    messages = {name[1:3]: value for name, value in found.items() if name[0] == "dalsegno_broker_messages"}
    assert messages == {
        ("timers", "scheduler:timers"): 1,
        ("dead", "wf:stream:dead"): 2,
        ("results", "wf:stream:results"): 0,
    }
    waiting = {
        name[1]: value for name, value in found.items() if name[0] == "dalsegno_broker_waiting_seconds"
    }
    assert 60 <= waiting.pop("dead") < 120
    assert waiting == {"timers": 0, "results": 0}


async def test_passwords_of_servers_are_shown_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(
        empty_sqlite(tmp_path / "shop.db"),
        broker="amqps://me:sekret%2F1@127.0.0.1:1/v",
        redis="rediss://me:sekret%2F1@127.0.0.1:1/0?ssl_password=sekret",
    )
    application = create_application(app)
    transport = httpx.ASGITransport(application)
    with caplog.at_level("DEBUG", logger="dalsegno"):
        async with (
            application.router.lifespan_context(application),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as http,
        ):
            paths = ("/v1/health", "/v1/health/ready", "/v1/workers", "/metrics")
            shown = [(await http.get(path)).text for path in paths]
            stack = app.engine.stack
            shown += [
                repr(stack),
                repr(stack.servers),
                *[sentence for each in stack.servers for sentence in await each.examine()],
            ]
    assert "RabbitMQ at amqps://me@127.0.0.1:1/v cannot be reached" in shown[0]
    assert "Redis at rediss://me:***@127.0.0.1:1/0" in shown[0]
    for text in (*shown, caplog.text, *[str(each.exc_info) for each in caplog.records]):
        assert "sekret" not in text


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
