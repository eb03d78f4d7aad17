"""Remote workers over HTTP: claim, heartbeat, complete, fail; what is lost goes to another."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dalsegno import App
from dalsegno.adapters.postgres.messaging import broker as postgres_broker
from dalsegno.adapters.sqlite import broker as sqlite_broker
from dalsegno.engine.remote.orchestrator import Orchestrator
from dalsegno.engine.remote.task_proxy import Answer, RemoteSteps
from dalsegno.errors import Unavailable
from dalsegno.server import ServerSettings
from dalsegno.server.application import create_application
from tests.server.test_executions import deploy_script, ended

GRAPH: dict[str, Any] = {
    "name": "thumbnails",
    "nodes": [
        {
            "id": "resize",
            "type": "task",
            "queue": "images",
            "parameters": {"task": "resize", "input": {"file": "{{ input.file }}"}},
        },
        {
            "id": "after",
            "type": "edit",
            "parameters": {"assignments": [{"name": "x", "value": "{{ $resize.small }}"}]},
        },
    ],
    "edges": [{"id": "e", "src": "resize", "dst": "after"}],
}
SCRIPT = """workflow remote(inputs) {
  const made = await Task.with({queue: "images", retries: 1}).run("resize", inputs)
  return made
}
"""


@pytest.fixture
def application(app: App) -> FastAPI:
    """Short leases, so that tests see them end."""

    @app.task(queue="images", name="resize", timeout="20s")
    async def resize(file: str) -> str:
        raise AssertionError(f"{file} was resized here")

    @app.workflow
    async def in_python(file: str) -> str:
        return await resize(file)

    return create_application(app, ServerSettings(task_lease=1.5, task_confirm=1.0))


@pytest.fixture
async def execution(http: httpx.AsyncClient) -> str:
    await http.post("/v1/definitions", json=GRAPH)
    answer = await http.post("/v1/executions", json={"workflow": "thumbnails", "input": {"file": "a.png"}})
    found: str = answer.json()["id"]
    return found


async def claim(http: httpx.AsyncClient, worker: str = "w1", **given: Any) -> list[dict[str, Any]]:
    body = {"worker": worker, "queues": ["images"], "wait": 5, **given}
    answer = await http.post("/v1/tasks/claim", json=body)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["tasks"]
    return found


async def complete(http: httpx.AsyncClient, task: dict[str, Any], output: Any = None) -> httpx.Response:
    return await http.post(
        f"/v1/tasks/{task['id']}/complete", json={"fence": task["fence"], "output": output}
    )


async def beat(http: httpx.AsyncClient, worker: str, *tasks: dict[str, Any]) -> list[str]:
    named = [{"id": each["id"], "fence": each["fence"]} for each in tasks]
    answer = await http.post("/v1/tasks/heartbeat", json={"worker": worker, "tasks": named})
    assert answer.status_code == 200, answer.text
    lost: list[str] = answer.json()["lost"]
    return lost


async def test_a_task_of_a_graph_runs_elsewhere(http: httpx.AsyncClient, execution: str) -> None:
    (task,) = await claim(http)
    assert (task["name"], task["node"], task["input"]) == ("resize", "resize", {"file": "a.png"})
    assert (task["attempt"], task["execution"], task["workflow"]) == (1, execution, "thumbnails")
    assert task["deadline"] is not None
    answer = await complete(http, task, {"small": "a-small.png"})
    assert (answer.status_code, answer.json()["repeated"]) == (200, False)
    assert (await ended(http, execution))["state"] == "COMPLETED"
    results = (await http.get(f"/v1/executions/{execution}/results")).json()
    assert results["$after"]["x"] == "a-small.png"


@pytest.mark.parametrize("kind", ["script", "python", "task"])
async def test_tasks_of_scripts_and_python_workflows_run_elsewhere(
    http: httpx.AsyncClient, app: App, kind: str
) -> None:
    if kind == "task":
        execution = await app.client.start_task("resize", "a.png", queue="images")
    else:
        await deploy_script(http, SCRIPT)
        name = "remote" if kind == "script" else "in_python"
        execution = (await http.post("/v1/executions", json={"workflow": name, "input": "a.png"})).json()[
            "id"
        ]
    (task,) = await claim(http)
    assert (task["name"], task["input"]) == ("resize", "a.png")
    assert (await complete(http, task, "small")).status_code == 200
    assert (await ended(http, execution))["output"] == "small"


async def test_a_failure_is_retried_as_the_workflow_says(http: httpx.AsyncClient) -> None:
    await deploy_script(http, SCRIPT)
    execution = (await http.post("/v1/executions", json={"workflow": "remote", "input": 1})).json()["id"]
    keys = set()
    for attempt in (1, 2):
        (task,) = await claim(http)
        assert task["attempt"] == attempt
        keys.add(task["idempotency_key"])
        error = {"type": "OSError", "message": "disk full"}
        body = {"fence": task["fence"], "error": error}
        assert (await http.post(f"/v1/tasks/{task['id']}/fail", json=body)).status_code == 200
    assert len(keys) == 1
    found = await ended(http, execution)
    assert (found["state"], found["error"]["type"], found["error"]["message"]) == (
        "FAILED",
        "OSError",
        "disk full",
    )


async def test_the_same_answer_again_gets_the_same_reply(http: httpx.AsyncClient, execution: str) -> None:
    (task,) = await claim(http)
    first, again = await asyncio.gather(
        complete(http, task, {"small": 1}), complete(http, task, {"small": 1})
    )
    assert (first.status_code, again.status_code) == (200, 200)
    third = await complete(http, task, {"small": 1})
    assert third.json() == {"id": task["id"], "repeated": True}
    body = {"fence": task["fence"], "error": {"message": "no"}}
    other = await http.post(f"/v1/tasks/{task['id']}/fail", json=body)
    assert (other.status_code, other.json()["code"]) == (409, "DS-350")


async def test_a_silent_worker_loses_its_task_and_its_late_answer_is_refused(
    http: httpx.AsyncClient, execution: str
) -> None:
    (task,) = await claim(http, "w1")
    assert await beat(http, "w1", task) == []
    (again,) = await claim(http, "w2", wait=10)
    assert (again["id"], again["attempt"]) == (task["id"], 1)
    assert again["fence"] > task["fence"]
    assert await beat(http, "w1", task) == [task["id"]]
    late = await complete(http, task, {"small": "late"})
    assert (late.status_code, late.json()["code"]) == (409, "DS-350")
    assert (await complete(http, again, {"small": "ok"})).status_code == 200
    assert (await ended(http, execution))["state"] == "COMPLETED"


async def test_a_server_that_stood_still_does_not_blame_its_workers(
    http: httpx.AsyncClient, execution: str
) -> None:
    (task,) = await claim(http)
    time.sleep(1.2)  # noqa: ASYNC251  the whole process, longer than a worker may be silent
    await asyncio.sleep(0.05)  # the server looks for silent ones before it reads what came in meanwhile
    assert (await complete(http, task, {"small": 1})).status_code == 200
    assert (await ended(http, execution))["state"] == "COMPLETED"


async def test_heartbeats_keep_a_task(http: httpx.AsyncClient, execution: str) -> None:
    (task,) = await claim(http)
    for _ in range(10):
        await asyncio.sleep(0.2)
        assert await beat(http, "w1", task) == []
    assert await claim(http, "w2", wait=0) == []
    assert (await complete(http, task, {"small": 1})).status_code == 200
    assert (await ended(http, execution))["state"] == "COMPLETED"


async def test_a_task_that_a_living_worker_does_not_know_of_goes_back_without_a_loss(
    http: httpx.AsyncClient, app: App, execution: str
) -> None:
    """The reply that brought it was lost on the way."""
    (task,) = await claim(http)
    for _ in range(6):
        await asyncio.sleep(0.2)
        assert await beat(http, "w1") == []
    (again,) = await claim(http, "w1", wait=1)
    assert again["id"] == task["id"]
    inspection = await app.client.stack.ledger.inspect(execution)
    assert inspection is not None
    assert [token.losses for token in inspection.tokens] == [0]


async def test_a_task_that_a_worker_has_confirmed_and_no_longer_names_goes_back(
    http: httpx.AsyncClient, app: App, execution: str
) -> None:
    """It was killed, and started again under the same name."""
    (task,) = await claim(http)
    assert await beat(http, "w1", task) == []
    for _ in range(6):
        await asyncio.sleep(0.2)
        assert await beat(http, "w1") == []
    (again,) = await claim(http, "w1", wait=1)
    assert (again["id"], again["fence"]) == (task["id"], task["fence"] + 1)
    assert (await complete(http, again, {"small": 1})).status_code == 200
    assert (await ended(http, execution))["state"] == "COMPLETED"


async def test_a_call_that_waits_is_woken_by_the_work(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in (sqlite_broker, postgres_broker):
        monkeypatch.setattr(each, "LOOK_EVERY", 3600.0)  # nothing else finds it
    waiting = asyncio.create_task(claim(http, wait=30))
    await asyncio.sleep(0.1)
    await http.post("/v1/definitions", json=GRAPH)
    began = asyncio.get_running_loop().time()
    await http.post("/v1/executions", json={"workflow": "thumbnails", "input": {"file": "b"}})
    assert len(await waiting) == 1
    assert asyncio.get_running_loop().time() - began < 20


async def test_what_a_broken_off_call_would_have_got_is_not_lost(http: httpx.AsyncClient) -> None:
    assert await claim(http, "w1", wait=0) == []
    await http.post("/v1/definitions", json=GRAPH)
    await http.post("/v1/executions", json={"workflow": "thumbnails", "input": {"file": "b"}})
    (task,) = await claim(http, "w2", wait=5)
    assert task["fence"] <= 2


async def test_batches(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=GRAPH)
    for _ in range(5):
        await http.post("/v1/executions", json={"workflow": "thumbnails", "input": {"file": "b"}})
    assert len(await claim(http, limit=3)) == 3
    assert len(await claim(http, limit=10)) == 2


async def test_a_task_that_takes_too_long_fails_with_a_timeout(http: httpx.AsyncClient) -> None:
    graph = {**GRAPH, "nodes": [{**GRAPH["nodes"][0], "timeout": 0.4}], "edges": []}
    await http.post("/v1/definitions", json=graph)
    answer = await http.post("/v1/executions", json={"workflow": "thumbnails", "input": {"file": "b"}})
    (task,) = await claim(http)
    for _ in range(6):
        await asyncio.sleep(0.1)
        await beat(http, "w1", task)
    found = await ended(http, answer.json()["id"])
    assert (found["state"], found["error"]["code"]) == ("FAILED", "TIMEOUT")
    assert (await complete(http, task, 1)).status_code == 409


async def test_parameters_that_cannot_be_rendered_fail_the_node_here(http: httpx.AsyncClient) -> None:
    node = {**GRAPH["nodes"][0], "parameters": {"task": "resize", "input": "{{ input.nothing.at.all }}"}}
    await http.post("/v1/definitions", json={**GRAPH, "nodes": [node], "edges": []})
    answer = await http.post("/v1/executions", json={"workflow": "thumbnails", "input": {}})
    assert await claim(http, wait=0.5) == []
    assert (await ended(http, answer.json()["id"]))["state"] == "FAILED"


async def test_a_node_behind_a_join_goes_to_its_own_queue(http: httpx.AsyncClient) -> None:
    before = [{"id": name, "type": "log", "parameters": {"message": name}} for name in ("a", "b")]
    resize = {**GRAPH["nodes"][0], "dependencies": ["a", "b"]}
    await http.post("/v1/definitions", json={"name": "joined", "nodes": [*before, resize]})
    answer = await http.post("/v1/executions", json={"workflow": "joined", "input": {"file": "j"}})
    (task,) = await claim(http)
    assert task["input"] == {"file": "j"}
    assert (await complete(http, task, 7)).status_code == 200
    assert (await ended(http, answer.json()["id"]))["state"] == "COMPLETED"


async def test_tasks_that_a_worker_does_not_know_are_left_to_others(
    http: httpx.AsyncClient, execution: str
) -> None:
    assert await claim(http, tasks=["paint"], wait=0.3) == []
    (task,) = await claim(http, "w2", tasks=["resize"], wait=20)
    assert (task["execution"], task["attempt"]) == (execution, 1)


async def test_another_server_process_takes_the_answer(
    app: App, execution: str, http: httpx.AsyncClient
) -> None:
    (task,) = await claim(http)
    other = Orchestrator(app.engine)
    assert await other.heartbeat("w1", [(task["id"], task["fence"])]) == []
    assert not (await other.settle(task["id"], task["fence"], Answer({"small": 1}))).repeated
    await other.stop()
    assert (await ended(http, execution))["state"] == "COMPLETED"


async def test_a_cancelled_execution_is_told_to_its_worker(http: httpx.AsyncClient, execution: str) -> None:
    (task,) = await claim(http)
    await http.post(f"/v1/executions/{execution}/cancel")
    assert await beat(http, "w1", task) == [task["id"]]
    assert (await complete(http, task)).json()["code"] == "DS-350"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("claim", {"worker": "w"}, 422),
        ("claim", {"worker": "a b", "queues": ["x"]}, 422),
        ("claim", {"worker": "w", "queues": ["system"], "wait": 0}, 422),
        ("nothing/complete", {"fence": 1}, 404),
        ("0198.abc/complete", {"fence": 1}, 404),
        ("0198.abc/fail", {"fence": 1, "error": {"message": "m"}}, 404),
    ],
)
async def test_what_makes_no_sense_is_refused(
    http: httpx.AsyncClient, path: str, body: dict[str, Any], status: int
) -> None:
    answer = await http.post(f"/v1/tasks/{path}", json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["detail"]


async def test_a_call_that_waits_ends_when_the_server_stops(
    http: httpx.AsyncClient, application: FastAPI
) -> None:
    waiting = asyncio.create_task(claim(http, wait=30))
    await asyncio.sleep(0.2)
    application.state.services.closing.set()
    assert await asyncio.wait_for(waiting, 25) == []


async def test_a_store_out_of_order_while_tasks_are_handed_out_loses_none(
    http: httpx.AsyncClient, execution: str, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise Unavailable("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(RemoteSteps, "ask", broken)
        body = {"worker": "w1", "queues": ["images"], "wait": 1}
        assert (await http.post("/v1/tasks/claim", json=body)).status_code == 503
    ledger = app.client.stack.ledger
    (name,) = [each.id for each in await ledger.workers() if each.id.startswith("remote:")]
    await asyncio.to_thread(ledger.heartbeat, name, -1.0)  # its time is over
    await app.engine.reconciler.take_back_leases()
    (task,) = await claim(http, "w1")
    assert task["execution"] == execution


async def test_a_claim_that_breaks_gives_the_worker_a_new_name(
    http: httpx.AsyncClient, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise Unavailable("the answer was lost")

    names = []
    for patched in (True, False):
        with monkeypatch.context() as patch:
            if patched:
                patch.setattr(app.client.stack.broker, "take", broken)
            await http.post("/v1/tasks/claim", json={"worker": "w1", "queues": ["images"], "wait": 0})
        names.append({each.id for each in await app.client.stack.ledger.workers()})
    assert len(names[1] - names[0]) == 1
