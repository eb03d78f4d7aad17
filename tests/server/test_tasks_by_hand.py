"""People settle tasks: of them and whoever has the task one is first, and the history says who it was."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dalsegno import App
from dalsegno.engine.operations.manual_tasks import ByHand
from dalsegno.engine.remote.orchestrator import Orchestrator
from dalsegno.engine.remote.task_proxy import Answer
from dalsegno.errors import Conflict, LeaseLost
from dalsegno.server import ServerSettings
from dalsegno.server.application import create_application
from tests.server.auth.test_keys import bearer, make_key
from tests.server.test_declared_remote_tasks import claim, complete, start
from tests.server.test_executions import deploy_script, ended
from tests.waiting import come_about

ENDINGS = ("TaskCompleted", "TaskFailed", "NodeCompleted", "NodeFailed", "NodeSkipped")
GRAPH: dict[str, Any] = {
    "name": "printing",
    "nodes": [
        {"id": "print", "type": "task", "parameters": {"task": "certificate", "input": "{{ input }}"}},
        {"id": "other", "type": "edit", "parameters": {"assignments": [{"name": "y", "value": 1}]}},
        {
            "id": "after",
            "type": "edit",
            "parameters": {"assignments": [{"name": "x", "value": "{{ $print.number }}"}]},
        },
    ],
    "edges": [{"id": "e", "src": "print", "dst": "after"}],
}
SCRIPT = 'workflow s(name) { const it = await Task.run("certificate", name); return {got: it} }'


@dataclass
class Paper:
    number: int


@pytest.fixture
def stuck() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
def application(app: App, stuck: asyncio.Event) -> FastAPI:
    certificate = app.remote_task("certificate", queue="office", returns=Paper, retries=1, docs="Prints one.")

    @app.task
    async def hang(n: int) -> int:
        await stuck.wait()
        return n

    @app.workflow
    async def certify(name: str) -> Any:
        paper = await certificate(name)
        return None if paper is None else paper.number

    @app.workflow
    async def hanging(n: int) -> int:
        return await hang(n)

    return create_application(app, ServerSettings(task_lease=30, keys_seconds=0.0))


async def open_task(
    http: httpx.AsyncClient, execution: str, *, task: str | None = None, state: str | None = None
) -> dict[str, Any]:
    """The first one, of that task, in that state."""
    seen: list[dict[str, Any]] = []

    async def look() -> bool:
        found = (await http.get("/v1/tasks", params={"execution": execution})).json()["items"]
        seen[:] = [each for each in found if task in (None, each["task"]) and state in (None, each["state"])]
        return bool(seen)

    await come_about(look, f"an open task of {execution}")
    return seen[0]


async def settle(http: httpx.AsyncClient, task: dict[str, Any], action: str, **given: Any) -> httpx.Response:
    return await http.post(f"/v1/tasks/{task['id']}/by-hand/{action}", json=given)


async def events(http: httpx.AsyncClient, execution: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        await http.get(f"/v1/executions/{execution}/events", params={"limit": 1000})
    ).json()["events"]
    return found


async def endings(http: httpx.AsyncClient, execution: str, node: str) -> list[dict[str, Any]]:
    return [
        each for each in await events(http, execution) if each["kind"] in ENDINGS and each["node"] == node
    ]


async def test_open_task_is_listed_with_its_input_and_what_it_returns(http: httpx.AsyncClient) -> None:
    execution = await start(http, "certify")
    task = await open_task(http, execution)
    assert (task["task"], task["state"], task["queue"], task["is_remote"]) == (
        "certificate",
        "queued",
        "office",
        True,
    )
    shown = (await http.get(f"/v1/tasks/{task['id']}")).json()
    assert (shown["input"], shown["docs"]) == ("Ada", "Prints one.")
    assert "number" in str(shown["returns"])
    of_queue = (await http.get("/v1/tasks", params={"queue": "office"})).json()["items"]
    assert [each["id"] for each in of_queue] == [task["id"]]
    assert (await http.get("/v1/tasks", params={"queue": "other"})).json()["items"] == []


@pytest.mark.parametrize(
    ("workflow", "node", "output"),
    [
        ("certify", "certificate", 7),
        ("s", "certificate", {"got": {"number": 7}}),
        ("printing", "print", None),
    ],
)
@pytest.mark.parametrize("is_held", [False, True])
async def test_completed_by_hand_it_goes_on_and_a_late_answer_is_refused(
    http: httpx.AsyncClient, workflow: str, node: str, output: Any, is_held: bool
) -> None:
    await deploy_script(http, SCRIPT)
    await http.post("/v1/definitions", json=GRAPH)
    execution = await start(http, workflow)
    held = await claim(http) if is_held else None
    task = await open_task(http, execution, task="certificate")
    assert task["holder"] == ("printer" if is_held else None)

    done = await settle(http, task, "complete", output={"number": 7}, reason="at the desk", by="Eva")
    assert (done.status_code, done.json()["action"]) == (200, "complete")
    found = await ended(http, execution)
    assert found["state"] == "COMPLETED"
    if output is not None:
        assert found["output"] == output
    [ending] = await endings(http, execution, node)
    assert ending["data"]["by_hand"] == {"action": "complete", "by": "Eva", "reason": "at the desk"}

    if held is not None:
        late = await complete(http, held, {"number": 8})
        assert (late.status_code, late.json()["code"]) == (409, "DS-350")
    again = await settle(http, task, "complete", output={"number": 9})
    assert again.status_code == 409
    assert "nothing was changed" in again.json()["detail"]
    assert len(await endings(http, execution, node)) == 1


async def test_output_that_does_not_fit_is_refused_and_nothing_happens(http: httpx.AsyncClient) -> None:
    execution = await start(http, "certify")
    task = await open_task(http, execution)
    refused = await settle(http, task, "complete", output={"number": "seven"})
    assert refused.status_code == 422
    assert "$.number" in refused.json()["detail"]
    assert (await open_task(http, execution))["state"] == "queued"


async def test_store_knows_what_a_task_returns_where_its_program_is_not_loaded(
    http: httpx.AsyncClient, app: App
) -> None:
    execution = await start(http, "certify")
    task = await open_task(http, execution)
    app.tasks._tasks.pop("certificate")
    refused = await settle(http, task, "complete", output={"number": "seven"})
    assert refused.status_code == 422, refused.text
    assert refused.json()["findings"][0]["pointer"] == "/output/number"


@pytest.mark.parametrize("workflow", ["certify", "s", "printing"])
async def test_failed_by_hand_for_good(http: httpx.AsyncClient, workflow: str) -> None:
    await deploy_script(http, SCRIPT)
    await http.post("/v1/definitions", json=GRAPH)
    execution = await start(http, workflow)
    await settle(http, await open_task(http, execution, task="certificate"), "fail", message="no such person")
    found = await ended(http, execution)
    assert found["state"] == "FAILED"
    assert "no such person" in found["error"]["message"]


@pytest.mark.parametrize("workflow", ["certify", "s", "printing"])
async def test_failed_by_hand_with_retries_left_it_sleeps_and_is_requeued(
    http: httpx.AsyncClient, workflow: str
) -> None:
    await deploy_script(http, SCRIPT)
    await http.post("/v1/definitions", json=GRAPH)
    execution = await start(http, workflow)
    held = await claim(http)
    await settle(
        http, await open_task(http, execution, task="certificate"), "fail", message="no paper", retry=True
    )
    task = await open_task(http, execution, task="certificate")
    assert (task["state"], task["attempt"]) == ("waiting", 2)
    assert (await complete(http, held, {"number": 1})).status_code == 409

    assert (await settle(http, task, "requeue")).status_code == 200
    second = await claim(http)
    assert (second["attempt"], second["idempotency_key"]) == (2, held["idempotency_key"])
    assert (await complete(http, second, {"number": 2})).status_code == 200
    assert (await ended(http, execution))["state"] == "COMPLETED"


async def test_skipped_in_a_program_it_gives_null(http: httpx.AsyncClient) -> None:
    await deploy_script(http, SCRIPT)
    for workflow, expected in (("certify", None), ("s", {"got": None})):
        execution = await start(http, workflow)
        await settle(http, await open_task(http, execution), "skip", reason="not needed")
        found = await ended(http, execution)
        assert (found["state"], found["output"]) == ("COMPLETED", expected)


async def test_skipped_in_a_graph_what_only_it_leads_to_is_skipped(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=GRAPH)
    execution = await start(http, "printing")
    await settle(http, await open_task(http, execution, task="certificate"), "skip", by="Eva")
    assert (await ended(http, execution))["state"] == "COMPLETED"
    nodes = (await http.get(f"/v1/executions/{execution}/nodes")).json()
    assert {name: node["state"] for name, node in nodes.items()} == {
        "print": "SKIPPED",
        "after": "SKIPPED",
        "other": "COMPLETED",
    }
    [skipped] = await endings(http, execution, "print")
    assert skipped["data"]["by_hand"] == {"action": "skip", "by": "Eva"}


async def test_requeued_it_goes_to_another_and_the_first_is_told(http: httpx.AsyncClient) -> None:
    execution = await start(http, "certify")
    first = await claim(http, "one")
    assert (
        await settle(http, await open_task(http, execution), "requeue", reason="hangs")
    ).status_code == 200
    named = {"worker": "one", "tasks": [{"id": first["id"], "fence": first["fence"]}]}
    assert (await http.post("/v1/tasks/heartbeat", json=named)).json()["lost"] == [first["id"]]

    second = await claim(http, "two")
    assert (second["id"], second["attempt"]) == (first["id"], 1)
    assert second["fence"] > first["fence"]
    assert (await complete(http, first, {"number": 1})).status_code == 409
    assert (await complete(http, second, {"number": 2})).status_code == 200
    assert (await ended(http, execution))["output"] == 2
    assert "TaskRequeued" in [each["kind"] for each in await events(http, execution)]


async def test_requeue_of_what_nobody_holds_says_so(http: httpx.AsyncClient) -> None:
    execution = await start(http, "certify")
    refused = await settle(http, await open_task(http, execution), "requeue")
    assert refused.status_code == 409
    assert "it waits in queue 'office' already" in refused.json()["detail"]


@pytest.mark.parametrize("action", ["complete", "requeue"])
async def test_stuck_task_of_ours_is_taken_from_its_worker(
    http: httpx.AsyncClient, stuck: asyncio.Event, action: str
) -> None:
    execution = await start(http, "hanging", 4)
    task = await open_task(http, execution, state="running")
    given = {"output": 5} if action == "complete" else {}
    assert (await settle(http, task, action, **given)).status_code == 200
    stuck.set()
    assert (await ended(http, execution))["output"] == (5 if action == "complete" else 4)
    assert len(await endings(http, execution, "hang")) == 1


async def test_node_that_waits_for_a_signal_is_settled_by_the_signal(http: httpx.AsyncClient) -> None:
    node = {"id": "w", "type": "wait", "parameters": {"resume": "signal", "signal": "go"}}
    deployed = await http.post("/v1/definitions", json={"name": "waits", "nodes": [node]})
    assert deployed.status_code == 201, deployed.text
    execution = await start(http, "waits", None)
    refused = await settle(http, await open_task(http, execution, state="waiting"), "complete")
    assert refused.status_code == 409
    assert "waits for the signal 'go': send it" in refused.json()["detail"]


async def test_only_admins_settle_and_the_audit_log_and_the_history_name_the_key(
    app: App, http: httpx.AsyncClient
) -> None:
    http.headers.update(bearer(await make_key(app, "admin", name="ops")))
    execution = await start(http, "certify")
    task = await open_task(http, execution)
    for scope in ("read", "run"):
        http.headers.update(bearer(await make_key(app, scope, name=scope)))
        assert (await settle(http, task, "complete", output={"number": 1})).status_code == 403
    http.headers.update(bearer(await make_key(app, "admin", name="boss")))
    done = await settle(http, task, "complete", output={"number": 1}, by="Eva")
    assert done.json()["by"] == "Eva (key boss)"
    await ended(http, execution)
    [ending] = await endings(http, execution, "certificate")
    assert ending["data"]["by_hand"]["by"] == "Eva (key boss)"
    noted = (await http.get("/v1/audit")).json()["items"]
    mine = [each for each in noted if each["path"].endswith("/by-hand/complete")]
    assert [(each["who"], each["status"]) for each in mine] == [("boss", 200), ("run", 403), ("read", 403)]
    assert mine[0]["action"] == "by_hand.complete"


async def test_unknown_task_is_not_found(http: httpx.AsyncClient) -> None:
    assert (await settle(http, {"id": "nonsense"}, "complete")).status_code == 404
    assert (await settle(http, {"id": "run.token"}, "complete")).status_code == 404


async def test_of_a_person_and_the_program_exactly_one_is_first(http: httpx.AsyncClient, app: App) -> None:
    """The same moment, many times: one answer counts, the other is refused, and the history has one ending."""
    hand, orchestrator = ByHand(app.engine), Orchestrator(app.engine)
    for _ in range(8):
        execution = await start(http, "certify")
        [held] = await orchestrator.claim("printer", ["office"], 1, 10)
        answers = [
            hand.complete(held.id, {"number": 1}, "Eva"),
            orchestrator.settle(held.id, held.lease.fence, Answer({"number": 2})),
        ]
        results = await asyncio.gather(*answers, return_exceptions=True)
        refused = [each for each in results if isinstance(each, BaseException)]
        assert len(refused) == 1
        assert isinstance(refused[0], Conflict | LeaseLost), refused
        winner = 1 if refused[0] is results[1] else 2
        assert (await ended(http, execution))["output"] == winner
        [ending] = await endings(http, execution, "certificate")
        assert ("by_hand" in ending["data"]) == (winner == 1)
    await orchestrator.stop()


async def test_after_the_answer_of_the_program_nothing_is_settled_by_hand(http: httpx.AsyncClient) -> None:
    execution = await start(http, "certify")
    held = await claim(http)
    await complete(http, held, {"number": 3})
    refused = await settle(http, held, "fail", message="too late")
    assert refused.status_code == 409
    assert "has ended with its execution" in refused.json()["detail"]
    assert (await ended(http, execution))["output"] == 3


async def test_of_two_people_one_is_first(http: httpx.AsyncClient, app: App) -> None:
    hand = ByHand(app.engine)
    execution = await start(http, "certify")
    task = await open_task(http, execution)
    results = await asyncio.gather(
        *(hand.complete(task["id"], {"number": n}) for n in range(6)), return_exceptions=True
    )
    assert sum(isinstance(each, Conflict) for each in results) == 5
    assert len(await endings(http, execution, "certificate")) == 1
