"""A start is answered without a second look at the store: with what a look would have shown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from dalsegno.app import App
from dalsegno.server.application import Roles, create_application

GRAPH = {"name": "greet", "nodes": [{"id": "hello", "type": "task", "parameters": {"task": "double"}}]}
MERGED = {
    "name": "merged",
    "nodes": [
        {"id": "one", "type": "task", "parameters": {"task": "double"}},
        {"id": "both", "type": "merge"},
    ],
    "edges": [{"src": "one", "dst": "both"}],
}
SCRIPT = "workflow talk(inputs) { return await Task.run('double', inputs) }"


@pytest.fixture
async def still(app: App) -> AsyncIterator[httpx.AsyncClient]:
    """A server without a worker: what was started stays as it was."""
    application = create_application(app, roles=Roles(worker=False, scheduler=False))
    async with application.router.lifespan_context(application):
        transport = httpx.ASGITransport(application, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as client:
            yield client


@pytest.mark.parametrize(
    "asked",
    [
        {"definition": GRAPH, "input": {"n": 1}},
        {"definition": MERGED},
        {"definition": SCRIPT, "input": {"n": [1, 2]}, "tags": {"b": "2", "a": "1"}, "priority": 7},
        {"definition": GRAPH, "idempotency_key": "once", "input": {"text": "é\u2028"}},
        {"definition": GRAPH, "delay": "1h"},
        {"definition": SCRIPT, "pending": True},
    ],
)
async def test_the_answer_is_what_a_look_shows(still: httpx.AsyncClient, asked: dict[str, Any]) -> None:
    inline = await still.post("/v1/executions", json=asked)
    assert inline.status_code == 201, inline.text
    by_name = {key: value for key, value in asked.items() if key not in ("definition", "idempotency_key")}
    named = await still.post("/v1/executions", json={**by_name, "workflow": inline.json()["workflow"]})
    assert named.status_code == 201, named.text
    for answer in (inline, named):
        look = await still.get(answer.headers["location"])
        assert look.status_code == 200
        assert answer.json() == look.json()
