"""What is told of workers: whose task it is, what they run, that they are dead, that nobody serves a queue."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dalsegno.app import App
from dalsegno.engine.remote.orchestrator import Orchestrator
from dalsegno.server import ServerSettings
from dalsegno.server.application import create_application
from tests.server.operations.test_health import part
from tests.server.test_queues import start, task_graph
from tests.server.test_remote import beat, claim, complete

SCRIPT = 'workflow asks(inputs) {\n  return await Task.with({queue: "images"}).run("dig", {})\n}\n'


@pytest.fixture
def application(app: App) -> FastAPI:
    """Short leases, so that a test sees one end; long enough for a busy machine."""
    return create_application(app, ServerSettings(task_lease=5.0, task_confirm=5.0))


async def remote_row(http: httpx.AsyncClient, worker: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = (await http.get("/v1/workers")).json()["workers"]
    return next(row for row in rows if row["id"].startswith(f"remote:{worker}:"))


async def only_reason(http: httpx.AsyncClient, execution: str) -> dict[str, Any]:
    [reason] = (await http.get(f"/v1/executions/{execution}/why")).json()["reasons"]
    found: dict[str, Any] = reason
    return found


async def taken_by(app: App, worker: str, seconds: float) -> None:
    """Something of the queue `images` is leased to a worker of that name, for so long."""
    ledger = app.client.stack.ledger
    await asyncio.to_thread(ledger.heartbeat, worker, 60.0)
    for _ in range(1000):
        if await ledger.claim(worker, ["images"], 1):
            break
        await asyncio.sleep(0.01)
    else:
        raise AssertionError("nothing came into the queue")
    await asyncio.to_thread(ledger.heartbeat, worker, seconds)


# -- whose task it is -----------------------------------------------------------------------------------------


async def test_a_heartbeat_for_the_task_of_another_worker_keeps_nothing(http: httpx.AsyncClient) -> None:
    await start(http, task_graph("one", "dig", "images"))
    (task,) = await claim(http, "c1")
    assert await beat(http, "c1", task) == []
    before = await remote_row(http, "c1")

    assert await beat(http, "ghost", task) == [task["id"]]

    after = await remote_row(http, "c1")
    assert (after["queues"], after["since"]) == (["images"], before["since"])
    assert after["expires_at"] == before["expires_at"]
    next_one = asyncio.create_task(claim(http, "c2", wait=20))
    while not next_one.done():
        assert await beat(http, "ghost", task) == [task["id"]]
        await asyncio.sleep(0.1)
    (again,) = await next_one
    assert (again["id"], again["fence"] > task["fence"]) == (task["id"], True)


async def test_another_server_that_hears_a_worker_keeps_what_is_known_of_it(
    http: httpx.AsyncClient, app: App
) -> None:
    await start(http, task_graph("one", "dig", "images"))
    (task,) = await claim(http, "c1")
    name, since = (row := await remote_row(http, "c1"))["id"], row["since"]

    other = Orchestrator(app.engine)
    assert await other.heartbeat("c1", [(task["id"], task["fence"])]) == []
    await other.stop()

    rows = (await http.get("/v1/workers")).json()["workers"]
    row = next(row for row in rows if row["id"] == name)
    assert (row["queues"], row["since"], [each["node"] for each in row["running"]]) == (
        ["images"],
        since,
        ["it"],
    )


async def test_what_a_remote_worker_runs_is_shown_until_it_has_ended(http: httpx.AsyncClient) -> None:
    execution = await start(http, task_graph("one", "dig", "images"))
    (task,) = await claim(http, "c1")
    await beat(http, "c1", task)

    row = await remote_row(http, "c1")
    assert (row["leases"], row["kind"]) == (1, "remote")
    assert row["running"] == [
        {"execution": execution, "node": "it", "kind": "node", "queue": "images", "attempt": 1}
    ]

    assert (await complete(http, task)).status_code == 200
    row = await remote_row(http, "c1")
    assert (row["leases"], row["running"]) == (0, [])


# -- health ---------------------------------------------------------------------------------------------------


async def test_work_that_waits_where_nobody_serves_degrades_health(http: httpx.AsyncClient) -> None:
    for _ in range(2):
        await start(http, task_graph("waits", "dig", "images"))

    health = (await http.get("/v1/health")).json()

    told = part(health, "queues")
    assert (health["status"], told.status) == ("degraded", "degraded")
    assert told.detail.startswith("no live worker serves 'images' (2 waiting);")
    assert "dalsegno worker --queues images" in told.detail


async def test_work_that_waits_for_a_worker_that_lives_is_no_trouble(
    http: httpx.AsyncClient, app: App
) -> None:
    served = b'{"queues":["images"]}'
    await asyncio.to_thread(app.client.stack.ledger.heartbeat, "elsewhere", 60.0, served)
    await start(http, task_graph("waits", "dig", "images"))

    health = (await http.get("/v1/health")).json()

    assert (health["status"], part(health, "queues").status) == ("ok", "ok")


# -- why ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("leases_stay")
async def test_why_tells_that_the_process_that_ran_a_node_is_gone(http: httpx.AsyncClient, app: App) -> None:
    command = "from dalsegno.engine.worker.directory import worker_name; print(worker_name())"
    ran = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", command], capture_output=True, text=True, check=True
    )
    dead = ran.stdout.strip()
    execution = await start(http, task_graph("one", "dig", "images"))
    await taken_by(app, dead, 60.0)

    reason = await only_reason(http, execution)

    assert reason["kind"] == "lost"
    assert reason["sentence"].startswith(f"node 'it' was running (attempt 1); its worker {dead} is dead")
    assert "; its lease ends at " in reason["sentence"]
    assert reason["due"] is not None


@pytest.mark.usefixtures("leases_stay")
async def test_why_tells_when_a_dead_worker_was_heard_of_last(http: httpx.AsyncClient, app: App) -> None:
    await http.post("/v1/definitions", json={"source": SCRIPT, "kind": "script"})
    execution = (await http.post("/v1/executions", json={"workflow": "asks"})).json()["id"]
    await taken_by(app, "elsewhere", 60.0)
    written = b'{"queues":["images"],"heard":1767603600.0}'
    await asyncio.to_thread(app.client.stack.ledger.heartbeat, "elsewhere", -1.0, written)

    reason = await only_reason(http, execution)

    assert reason["kind"] == "lost"
    assert "task 'dig' was running (attempt 1); its worker elsewhere is dead" in reason["sentence"]
    assert "(last heard of at 2026-01-05T09:00:00Z); its lease expired at " in reason["sentence"]


async def test_why_says_running_while_the_worker_lives(http: httpx.AsyncClient, app: App) -> None:
    execution = await start(http, task_graph("one", "dig", "images"))
    await taken_by(app, "elsewhere", 60.0)

    reason = await only_reason(http, execution)

    assert (reason["kind"], reason["sentence"]) == ("running", "node 'it' is running (attempt 1)")
