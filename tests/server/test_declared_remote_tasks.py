"""Declared remote tasks: only programs that claim their queue run them, wherever the task was put at first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dalsegno import App, BadConfiguration, EngineSettings
from dalsegno.server.application import create_application
from tests.server.conftest import LASTING, LiveServer
from tests.server.test_executions import deploy_script, ended


@dataclass
class Paper:
    number: int


@pytest.fixture
def application(app: App) -> FastAPI:
    certificate = app.remote_task("certificate", queue="office", returns=Paper)

    @app.workflow
    async def certify(name: str) -> int:
        return (await certificate(name)).number

    return create_application(app)


async def start(http: httpx.AsyncClient, workflow: str, given: Any = "Ada") -> str:
    answer = await http.post("/v1/executions", json={"workflow": workflow, "input": given})
    assert answer.status_code == 201, answer.text
    found: str = answer.json()["id"]
    return found


async def claim(http: httpx.AsyncClient, worker: str = "printer") -> dict[str, Any]:
    body = {"worker": worker, "queues": ["office"], "wait": 20}
    found: list[dict[str, Any]] = (await http.post("/v1/tasks/claim", json=body)).json()["tasks"]
    assert len(found) == 1
    return found[0]


async def complete(http: httpx.AsyncClient, task: dict[str, Any], output: Any) -> httpx.Response:
    given = {"fence": task["fence"], "output": output}
    return await http.post(f"/v1/tasks/{task['id']}/complete", json=given)


async def test_program_runs_the_task_of_a_python_workflow(http: httpx.AsyncClient) -> None:
    execution = await start(http, "certify")
    task = await claim(http)
    assert (task["name"], task["input"]) == ("certificate", "Ada")
    await complete(http, task, {"number": 7})
    assert (await ended(http, execution))["output"] == 7


async def test_answer_that_does_not_fit_fails_the_task_and_says_where(http: httpx.AsyncClient) -> None:
    execution = await start(http, "certify")
    await complete(http, await claim(http), {"number": "seven"})
    error = (await ended(http, execution))["error"]
    assert "the output of remote task 'certificate' does not fit Paper" in error["message"]
    assert "$.number" in error["message"]


async def test_script_and_graph_reach_it_by_name(http: httpx.AsyncClient) -> None:
    await deploy_script(http, 'workflow s(name) { return await Task.run("certificate", name) }')
    graph = {
        "name": "g",
        "nodes": [{"id": "n", "type": "task", "parameters": {"task": "certificate", "input": "{{ input }}"}}],
    }
    await http.post("/v1/definitions", json=graph)
    for workflow in ("s", "g"):
        execution = await start(http, workflow)
        await complete(http, await claim(http), {"number": 1})
        assert (await ended(http, execution))["output"] == {"number": 1}


async def test_task_that_was_put_into_our_own_queue_goes_to_the_queue_of_the_program(
    http: httpx.AsyncClient,
) -> None:
    source = 'workflow s(name) { return await Task.with({queue: "default"}).run("certificate", name) }'
    await deploy_script(http, source)
    execution = await start(http, "s")
    await complete(http, await claim(http), {"number": 2})
    assert (await ended(http, execution))["output"] == {"number": 2}


@LASTING
async def test_server_without_the_program_knows_its_declarations(store_url: str) -> None:
    """Another process has declared the task: its retries and its type hold here, too."""
    program = App(store_url)
    program.remote_task("certificate", queue="office", returns=Paper, retries=1)
    with program.running(), LiveServer(App(store_url)) as live:
        async with httpx.AsyncClient(base_url=live.url, timeout=30) as http:
            await deploy_script(http, 'workflow s(name) { return await Task.run("certificate", name) }')
            execution = await start(http, "s")
            task = await claim(http)
            error = {"message": "no paper"}
            await http.post(f"/v1/tasks/{task['id']}/fail", json={"fence": task["fence"], "error": error})
            task = await claim(http)
            assert task["attempt"] == 2
            await complete(http, task, {"number": "seven"})
            told = (await ended(http, execution))["error"]["message"]
    assert "the output of remote task 'certificate' does not fit what it returns: /number: " in told


async def test_worker_of_ours_does_not_serve_the_queue() -> None:
    app = App("memory:", settings=EngineSettings(queues=("default", "office")))
    app.remote_task("certificate", queue="office")
    with pytest.raises(BadConfiguration, match=r"queue 'office' \(remote task 'certificate'\)"):
        async with app.running():
            pass
    await app.aclose()
