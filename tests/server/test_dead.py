"""Dead letters: what does not go on by itself, seen and handled over HTTP and on the command line."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import httpx
import pytest

from dalsegno import App
from dalsegno.engine.operations.dead_letters import DeadLetters
from dalsegno.engine.settings import EngineSettings
from dalsegno.engine.starting.start import Started
from dalsegno.errors import BadConfiguration
from dalsegno.server.executions.filters import to_cursor
from tests.server.conftest import LiveServer
from tests.server.test_executions import WAITS, deploy_script, ended
from tests.servers.forking import run_program

LOST = {"name": "lost", "nodes": [{"id": "it", "type": "task", "parameters": {"task": "nobody"}}]}
CALLS = 'workflow calls(inputs) {\n  const it = await Workflow.run("child", 1)\n  return it\n}\n'
CHILD = "workflow child(inputs) {\n  return inputs\n}\n"


@pytest.fixture
def app(app: App) -> App:
    """A missing task fails at once."""
    app.settings = replace(app.settings, missing_tasks="fail")
    return app


async def dead(http: httpx.AsyncClient) -> list[dict[str, Any]]:
    answer = await http.get("/v1/dead")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


async def until_dead(http: httpx.AsyncClient) -> dict[str, Any]:
    for _ in range(400):
        found = await dead(http)
        if found:
            return found[0]
        await asyncio.sleep(0.05)
    raise AssertionError("nothing is dead")


async def test_an_execution_that_failed_for_a_reason_of_the_system_is_retried_or_dropped(
    http: httpx.AsyncClient, app: App
) -> None:
    execution = (await http.post("/v1/executions", json={"definition": LOST})).json()["id"]
    await ended(http, execution)
    (letter,) = await dead(http)
    assert (letter["kind"], letter["execution"], letter["code"]) == ("execution", execution, "TASK_NOT_FOUND")

    @app.task
    async def nobody() -> str:
        return "somebody"

    again = (await http.post(f"/v1/dead/{letter['id']}/retry")).json()["execution"]
    assert (await ended(http, again))["output"] == "somebody"
    assert (await http.post(f"/v1/dead/{letter['id']}/drop")).status_code == 200
    assert await dead(http) == []


async def test_a_workflow_that_fails_by_itself_is_no_dead_letter(http: httpx.AsyncClient) -> None:
    graph = {"name": "own", "nodes": [{"id": "it", "type": "task", "parameters": {"task": "fail"}}]}
    await ended(http, (await http.post("/v1/executions", json={"definition": graph})).json()["id"])
    assert await dead(http) == []


async def test_an_order_that_cannot_be_delivered_is_told_with_its_reason(
    http: httpx.AsyncClient, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    await deploy_script(http, CHILD)
    await deploy_script(http, CALLS)
    monkeypatch.setattr("dalsegno.engine.upkeep.outbox.LOOK_AGAIN", 0.05)
    start, broken = app.client.launcher.start_ordered, True

    async def lacks(order: Any) -> Started:
        if broken:
            raise BadConfiguration("the module 'orders' is not installed here")
        return await start(order)

    monkeypatch.setattr(app.client.launcher, "start_ordered", lacks)
    execution = (await http.post("/v1/executions", json={"workflow": "calls"})).json()["id"]
    letter = await until_dead(http)
    assert (letter["kind"], letter["execution"]) == ("outbox", execution)
    assert (letter["reason"], letter["tries"]) == ("the module 'orders' is not installed here", 3)
    broken = False
    assert (await http.post(f"/v1/dead/{letter['id']}/retry")).json()["execution"] == execution
    assert (await ended(http, execution))["output"] == 1
    assert await dead(http) == []


async def test_a_dropped_order_is_never_carried_out(
    http: httpx.AsyncClient, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    await deploy_script(http, CALLS)
    monkeypatch.setattr("dalsegno.engine.upkeep.outbox.LOOK_AGAIN", 0.05)

    async def lacks(order: Any) -> str:
        raise BadConfiguration("not here")

    monkeypatch.setattr(app.client.launcher, "start_ordered", lacks)
    await http.post("/v1/executions", json={"workflow": "calls"})
    letter = await until_dead(http)
    assert (await http.post(f"/v1/dead/{letter['id']}/drop")).status_code == 200
    assert await app.client.stack.ledger.outbox() == []
    assert await dead(http) == []


async def test_a_step_that_no_worker_can_run_is_told_and_dropped_with_its_execution(
    http: httpx.AsyncClient, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lacks(*_: object) -> None:
        raise BadConfiguration("no module named 'shop'")

    monkeypatch.setattr("dalsegno.engine.worker.tokens.CANNOT_RUN_PAUSE", 0.02)
    monkeypatch.setattr(app.engine.steps, "step", lacks)
    execution = (await http.post("/v1/executions", json={"definition": LOST})).json()["id"]
    letter = await until_dead(http)
    assert (letter["kind"], letter["execution"], letter["tries"]) == ("token", execution, 3)
    assert letter["reason"] == "no module named 'shop'"
    assert (await http.post(f"/v1/dead/{letter['id']}/retry")).json()["execution"] == execution
    letter = await until_dead(http)
    await http.post(f"/v1/dead/{letter['id']}/drop")
    assert (await ended(http, execution))["state"] == "CANCELLED"
    assert await dead(http) == []


async def test_stuck_executions_are_listed_and_dropped(http: httpx.AsyncClient, app: App) -> None:
    await deploy_script(http, WAITS)
    execution = (await http.post("/v1/executions", json={"workflow": "waits"})).json()["id"]
    app.engine.reconciler.stuck[execution] = "it has no live token and has not ended"
    (letter,) = await dead(http)
    assert (letter["id"], letter["kind"]) == (f"stuck:{execution}", "stuck")
    assert (await http.post(f"/v1/dead/{letter['id']}/retry")).status_code == 200
    app.engine.reconciler.stuck[execution] = "again"
    assert (await http.post(f"/v1/dead/{letter['id']}/drop")).status_code == 200
    assert (await ended(http, execution))["state"] == "CANCELLED"


async def fail_of_the_system(http: httpx.AsyncClient, graph: dict[str, Any] = LOST) -> str:
    execution = str((await http.post("/v1/executions", json={"definition": graph})).json()["id"])
    await ended(http, execution)
    return execution


async def pages(http: httpx.AsyncClient, limit: int) -> list[list[str]]:
    found: list[list[str]] = []
    cursor: str | None = None
    while True:
        given: dict[str, str | int] = {"limit": limit, **({"cursor": cursor} if cursor else {})}
        page = (await http.get("/v1/dead", params=given)).json()
        found.append([letter["execution"] for letter in page["items"]])
        cursor = page["next"]
        if cursor is None:
            return found


async def test_dead_letters_are_listed_in_pages(http: httpx.AsyncClient, app: App) -> None:
    failed = [await fail_of_the_system(http) for _ in range(3)]
    await deploy_script(http, WAITS)
    stuck = sorted(
        [(await http.post("/v1/executions", json={"workflow": "waits"})).json()["id"] for _ in "ab"]
    )
    for execution in stuck:
        app.engine.reconciler.stuck[execution] = "nothing can move it"
    everything = [*stuck, *reversed(failed)]

    assert await pages(http, 5) == [everything]
    assert await pages(http, 2) == [everything[:2], everything[2:4], everything[4:]]
    assert await pages(http, 1) == [[each] for each in everything]
    await http.post(f"/v1/dead/execution:{failed[1]}/drop")
    assert await pages(http, 4) == [[*stuck, failed[2], failed[0]]]
    for wrong in ("!", "WzFd", "e30", to_cursor('["failed","\\u0000",1]'), to_cursor('["failed","x",1e999]')):
        refused = await http.get("/v1/dead", params={"cursor": wrong})
        assert (refused.status_code, refused.json()["code"]) == (422, "DS-120")


async def test_dead_letters_far_behind_are_found_by_going_on(
    http: httpx.AsyncClient, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dalsegno.engine.operations.dead_letters.LOOKED_AT", 2)
    own = {"name": "own", "nodes": [{"id": "it", "type": "task", "parameters": {"task": "fail"}}]}
    dead_long = await fail_of_the_system(http)
    for _ in range(3):
        await fail_of_the_system(http, own)

    assert await pages(http, 10) == [[], [dead_long], []]
    assert [letter.execution for letter in await DeadLetters(app.engine).all(10)] == [dead_long]


@pytest.mark.parametrize(
    ("id", "status"),
    [("nonsense", 404), ("outbox:x", 404), ("token:x", 404), ("execution:x", 404), ("stuck:x", 404)],
)
async def test_what_is_no_dead_letter_is_refused(http: httpx.AsyncClient, id: str, status: int) -> None:
    for verb in ("retry", "drop"):
        answer = await http.post(f"/v1/dead/{id}/{verb}")
        assert answer.status_code == status, answer.text


@pytest.mark.parametrize(
    ("store_url", "way"),
    [("sqlite", "store"), ("sqlite", "server"), ("postgres", "store")],
    indirect=["store_url"],
)
def test_the_command_lists_retries_and_drops(store_url: str, way: str) -> None:
    app = App(store_url, settings=EngineSettings(missing_tasks="fail"))
    with LiveServer(app) as live:
        execution = httpx.post(f"{live.url}/v1/executions", json={"definition": LOST}).json()["id"]
        until = time.monotonic() + 20
        while httpx.get(f"{live.url}/v1/executions/{execution}").json()["ended_at"] is None:
            assert time.monotonic() < until
            time.sleep(0.02)
        place = ("--store", store_url) if way == "store" else ("--server", live.url)

        def command(*words: str) -> Any:
            done = run_program("dead", *words, *place, "--json")
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)

        (letter,) = command("ls")["dead"]
        assert (letter["execution"], letter["code"]) == (execution, "TASK_NOT_FOUND")
        if way == "store":
            told = json.loads(run_program("doctor", "--store", store_url, "--json").stdout)
            (check,) = [each for each in told["checks"] if each["name"] == "dead letters"]
            assert (check["status"], check["cure"]) == ("warn", "dalsegno dead ls")
        assert command("drop", letter["id"])["execution"] == execution
        assert command("ls")["dead"] == []
        assert command("retry", letter["id"])["execution"] != execution
