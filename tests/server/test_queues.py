"""Workers and queues over HTTP: who runs what, and how much waits."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from dalsegno import App
from tests.server.test_executions import ended


def task_graph(name: str, task: str, queue: str = "default") -> dict[str, Any]:
    return {
        "name": name,
        "nodes": [{"id": "it", "type": "task", "queue": queue, "parameters": {"task": task}}],
    }


async def start(http: httpx.AsyncClient, graph: dict[str, Any]) -> str:
    answer = await http.post("/v1/executions", json={"definition": graph})
    assert answer.status_code == 201, answer.text
    found: str = answer.json()["id"]
    return found


async def test_a_queue_that_nobody_serves_shows_what_waits_and_since_when(http: httpx.AsyncClient) -> None:
    for _ in range(3):
        await start(http, task_graph("waits", "resize", "images"))
    await asyncio.sleep(0.05)
    (queue,) = (await http.get("/v1/queues")).json()["queues"]
    assert (queue["queue"], queue["ready"], queue["running"], queue["served"]) == ("images", 3, 0, False)
    assert 0.05 <= queue["oldest_seconds"] < 60


async def test_what_runs_is_counted_and_its_worker_named(app: App, http: httpx.AsyncClient) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def slow() -> None:
        begun.set()
        await go_on.wait()

    execution = await start(http, task_graph("runs", "slow"))
    await begun.wait()
    (queue,) = (await http.get("/v1/queues")).json()["queues"]
    assert (queue["queue"], queue["ready"], queue["running"], queue["served"]) == ("default", 0, 1, True)
    heartbeat = app.engine._heartbeat
    assert heartbeat is not None
    await asyncio.to_thread(heartbeat.beat)
    (worker,) = (await http.get("/v1/workers")).json()["workers"]
    assert (worker["kind"], worker["state"], worker["leases"]) == ("local", "alive", 1)
    assert worker["queues"] == ["default", "system"]
    assert [(each["execution"], each["node"]) for each in worker["running"]] == [(execution, "it")]
    go_on.set()
    await ended(http, execution)
    assert (await http.get("/v1/queues")).json() == {"queues": []}


@pytest.mark.usefixtures("leases_stay")
async def test_remote_workers_and_dead_ones_are_listed(app: App, http: httpx.AsyncClient) -> None:
    await start(http, task_graph("away", "resize", "images"))
    body = {"worker": "w1", "queues": ["images"], "wait": 1}
    assert len((await http.post("/v1/tasks/claim", json=body)).json()["tasks"]) == 1
    ledger = app.client.stack.ledger
    await asyncio.to_thread(ledger.heartbeat, "gone", -1.0, b"not json")
    found = {each["id"]: each for each in (await http.get("/v1/workers")).json()["workers"]}
    remote = next(each for name, each in found.items() if name.startswith("remote:w1:"))
    assert (remote["kind"], remote["state"], remote["leases"], remote["queues"]) == (
        "remote",
        "alive",
        1,
        ["images"],
    )
    assert (found["gone"]["state"], found["gone"]["queues"]) == ("dead", [])
    (queue,) = (await http.get("/v1/queues")).json()["queues"]
    assert (queue["running"], queue["served"]) == (1, True)
