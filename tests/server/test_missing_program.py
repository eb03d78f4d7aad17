"""`why` of a task that a remote program has to run: which one is missing; a worker of ours would not help."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dalsegno import App
from dalsegno.server import ServerSettings
from dalsegno.server.application import create_application
from tests.server.test_declared_remote_tasks import claim, complete, start
from tests.server.test_executions import deploy_script, ended
from tests.server.test_review_why import reasons


@pytest.fixture
def application(app: App) -> FastAPI:
    certificate = app.remote_task("certificate", queue="office")

    @app.workflow
    async def certify(name: str) -> Any:
        return await certificate(name)

    return create_application(app, ServerSettings(task_lease=0.4, task_confirm=0.2))


async def test_program_that_never_came_is_named_by_its_task_and_queue(http: httpx.AsyncClient) -> None:
    execution = await start(http, "certify")
    [reason] = await reasons(http, execution, "queued")
    assert "remote task 'certificate' waits for a program that claims queue 'office'" in reason["sentence"]
    assert "start the one that runs remote task 'certificate'" in reason["sentence"]
    assert "worker" not in reason["sentence"]
    assert (reason["is_remote"], reason["tasks"], reason["claims"]) == (True, ["certificate"], [])


async def test_program_that_was_here_is_named_with_its_last_claim(http: httpx.AsyncClient) -> None:
    first = await start(http, "certify")
    await complete(http, await claim(http, "printer-1"), "paper")
    await ended(http, first)
    execution = await start(http, "certify")
    for _ in range(500):
        [reason] = await reasons(http, execution, "queued")
        if not reason["claims"]:  # it was silent for its lease
            break
        assert "'printer-1' claims it now" in reason["sentence"]
        await asyncio.sleep(0.02)
    assert (reason["claimed_by"], reason["claimed_at"] is not None) == ("printer-1", True)
    assert "no program claims it now; 'printer-1' did last, at " in reason["sentence"]

    health = (await http.get("/v1/health")).json()
    queues = next(part for part in health["parts"] if part["name"] == "queues")
    assert queues["detail"] == "no program claims 'office' (1 waiting)"


async def test_queue_without_a_declaration_is_remote_once_a_program_had_tasks_of_it(
    http: httpx.AsyncClient,
) -> None:
    await deploy_script(http, 'workflow digs(queue) { return await Task.with({queue: queue}).run("dig", 1) }')
    execution = await start(http, "digs", "moon")
    [before] = await reasons(http, execution, "queued")
    assert "no worker serves queue 'moon' now" in before["sentence"]
    body = {"worker": "rover", "queues": ["moon", "mars"], "wait": 20}
    [task] = (await http.post("/v1/tasks/claim", json=body)).json()["tasks"]
    await http.post(f"/v1/tasks/{task['id']}/complete", json={"fence": task["fence"], "output": 1})

    for queue, is_remote in (("moon", True), ("mars", False)):
        [after] = await reasons(http, await start(http, "digs", queue), "queued")
        assert (after["is_remote"], after["claimed_by"]) == (is_remote, "rover" if is_remote else None)
