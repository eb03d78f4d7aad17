"""A server whose process also runs a worker, with a broker: programs elsewhere claim tasks over HTTP beside it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dalsegno import App
from dalsegno.server import ServerSettings
from dalsegno.server.application import create_application
from tests.server.test_executions import ended
from tests.server.test_remote import claim, complete
from tests.servers.sqlite import empty_sqlite

IMAGES = 6
GRAPH: dict[str, Any] = {
    "name": "thumbnails",
    "nodes": [
        {"id": "before", "type": "task", "parameters": {"task": "name_of", "input": "{{ input.n }}"}},
        {
            "id": "resize",
            "type": "task",
            "queue": "images",
            "parameters": {"task": "resize", "input": {"file": "{{ $before }}"}},
        },
        {"id": "after", "type": "task", "parameters": {"task": "shout", "input": "{{ $resize }}"}},
    ],
    "edges": [
        {"id": "a", "src": "before", "dst": "resize"},
        {"id": "b", "src": "resize", "dst": "after"},
    ],
}


@pytest.fixture(params=["rabbitmq_url", "redis_url"])
def application(request: pytest.FixtureRequest, tmp_path: Path) -> FastAPI:
    app = App(empty_sqlite(tmp_path / "shop.db"), broker=request.getfixturevalue(request.param))

    @app.task
    async def name_of(n: int) -> str:
        return f"{n}.png"

    @app.task
    async def shout(text: str) -> str:
        return text.upper()

    app.remote_task("resize", queue="images")

    return create_application(app, ServerSettings(task_lease=5.0))


async def test_both_get_their_work_at_once(http: httpx.AsyncClient) -> None:
    """Neither waits for a look of the other's, nor takes what the other one serves."""
    await http.post("/v1/definitions", json=GRAPH)
    started = [
        await http.post("/v1/executions", json={"workflow": "thumbnails", "input": {"n": n}})
        for n in range(IMAGES)
    ]
    files = set()

    async def program(name: str) -> None:
        while len(files) < IMAGES:
            for task in await claim(http, name, limit=1, wait=1):
                files.add(task["input"]["file"])
                done = await complete(http, task, f"small {task['input']['file']}")
                assert done.status_code == 200, done.text

    async with asyncio.timeout(60):
        await asyncio.gather(program("p1"), program("p2"))
        for number, reply in enumerate(started):
            execution = reply.json()["id"]
            await ended(http, execution)
            results = (await http.get(f"/v1/executions/{execution}/results")).json()
            assert results["$after"] == f"SMALL {number}.PNG"
    assert files == {f"{number}.png" for number in range(IMAGES)}
