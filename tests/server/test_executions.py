"""Executions over HTTP: start, look, command."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from dalsegno.server.http import responses
from dalsegno.server.services import ServerServices
from tests.server.test_definitions import GRAPH, SCRIPT

WAITS = 'workflow waits(inputs) {\n  const who = await Signal.when("go")\n  return who\n}\n'


async def ended(http: httpx.AsyncClient, execution: str) -> dict[str, Any]:
    for _ in range(500):
        found: dict[str, Any] = (await http.get(f"/v1/executions/{execution}")).json()
        if found["ended_at"] is not None:
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(f"{execution} did not end: {found}")


async def deploy_script(http: httpx.AsyncClient, source: str) -> None:
    answer = await http.post("/v1/definitions", json={"source": source, "kind": "script"})
    assert answer.status_code == 201, answer.text


async def test_start_to_result(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=GRAPH)
    answer = await http.post(
        "/v1/executions", json={"workflow": "sum", "input": {"n": 21}, "tags": {"env": "t"}}
    )
    assert answer.status_code == 201
    execution = answer.json()["id"]
    assert answer.headers["location"] == f"/v1/executions/{execution}"
    found = await ended(http, execution)
    assert (found["state"], found["input"], found["tags"]) == ("COMPLETED", {"n": 21}, {"env": "t"})
    assert (await http.get(f"/v1/executions/{execution}/results")).json()["$twice"] == 42
    assert (await http.get(f"/v1/executions/{execution}/nodes")).json()["twice"]["state"] == "COMPLETED"
    events = (await http.get(f"/v1/executions/{execution}/events")).json()
    assert [each["seq"] for each in events["events"]] == list(range(1, events["last"] + 1))
    assert (await http.get(f"/v1/executions/{execution}/why")).json()["reasons"] == []


async def test_an_inline_definition_is_deployed_and_started_in_one_call(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/executions", json={"definition": GRAPH, "input": {"n": 1}})
    assert (await ended(http, answer.json()["id"]))["state"] == "COMPLETED"


async def test_an_inline_script_is_deployed_and_started_in_one_call(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/executions", json={"definition": SCRIPT, "input": {"n": 21}})
    assert answer.status_code == 201, answer.text
    found = await ended(http, answer.json()["id"])
    assert (found["workflow"], found["kind"], found["state"]) == ("twice", "script", "COMPLETED")
    assert found["output"] == 42

    wrong = await http.post("/v1/executions", json={"definition": "workflow w(i) {\n  return nobody\n}\n"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "DS-183")
    assert wrong.json()["errors"][0]["line"] == 2


async def test_the_same_idempotency_key_is_the_same_execution(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=GRAPH)
    body = {"workflow": "sum", "input": {"n": 1}}
    first = await http.post("/v1/executions", json=body, headers={"Idempotency-Key": "k1"})
    again = await http.post("/v1/executions", json=body, headers={"Idempotency-Key": "k1"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]


async def test_a_signal_lets_a_script_go_on(http: httpx.AsyncClient) -> None:
    await deploy_script(http, WAITS)
    execution = (await http.post("/v1/executions", json={"workflow": "waits"})).json()["id"]
    for _ in range(500):
        reasons = (await http.get(f"/v1/executions/{execution}/why")).json()["reasons"]
        if any(each["kind"] == "signal" for each in reasons):
            break
        await asyncio.sleep(0.01)
    picture = (await http.get(f"/v1/executions/{execution}/picture")).json()
    assert (picture["line"], picture["awaits"]) == (2, "signal go")
    sent = await http.post(f"/v1/executions/{execution}/signals", json={"name": "go", "payload": "Ada"})
    assert sent.status_code == 202
    assert (await ended(http, execution))["output"] == "Ada"


async def test_pause_resume_cancel_and_retry(http: httpx.AsyncClient) -> None:
    await deploy_script(http, WAITS)
    execution = (await http.post("/v1/executions", json={"workflow": "waits"})).json()["id"]
    assert (await http.post(f"/v1/executions/{execution}/pause")).json()["state"] == "PAUSED"
    assert (await http.post(f"/v1/executions/{execution}/resume")).json()["state"] == "RUNNING"
    await http.post(f"/v1/executions/{execution}/cancel", json={"reason": "enough"})
    assert (await ended(http, execution))["state"] == "CANCELLED"
    late = await http.post(f"/v1/executions/{execution}/pause")
    assert (late.status_code, late.json()["code"]) == (409, "DS-160")
    again = await http.post(f"/v1/executions/{execution}/retry")
    assert (again.status_code, again.json()["parent"]) == (201, execution)


async def test_rerun_from_a_node_with_an_edited_context(http: httpx.AsyncClient) -> None:
    first = (await http.post("/v1/executions", json={"definition": GRAPH, "input": {"n": 1}})).json()["id"]
    await ended(http, first)
    body = {"nodes": ["twice"], "context": {"$begin": {"n": 50}}}
    again = (await http.post(f"/v1/executions/{first}/rerun", json=body)).json()
    assert (again["parent"], again["relation"]) == (first, "rerun")
    await ended(http, again["id"])
    assert (await http.get(f"/v1/executions/{again['id']}/results")).json()["$twice"] == 100


async def test_lists_are_filtered_and_paged(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=GRAPH)
    await deploy_script(http, SCRIPT)
    for number in range(5):
        body = {"workflow": "sum", "input": {"n": number}, "tags": {"odd": str(number % 2)}}
        await ended(http, (await http.post("/v1/executions", json=body)).json()["id"])
    await ended(
        http, (await http.post("/v1/executions", json={"workflow": "twice", "input": {"n": 1}})).json()["id"]
    )
    odd = (await http.get("/v1/executions", params={"workflow": "sum", "tag": "odd=1"})).json()["items"]
    assert len(odd) == 2
    first = (await http.get("/v1/executions", params={"workflow": "sum", "limit": 3})).json()
    rest = (
        await http.get("/v1/executions", params={"workflow": "sum", "limit": 3, "cursor": first["next"]})
    ).json()
    assert (len(first["items"]), len(rest["items"]), rest["next"]) == (3, 2, None)
    assert (await http.get("/v1/executions", params={"state": "FAILED"})).json()["items"] == []


async def test_wrong_starts_are_refused_with_their_place(http: httpx.AsyncClient) -> None:
    for body, pointer in (
        ({"workflow": "sum", "tags": {"a": 1}}, "/body/tags/a"),
        ({"workflow": "sum", "surprise": 1}, "/body/surprise"),
        ({"workflow": "sum", "priority": 10**9}, "/body/priority"),
    ):
        answer = await http.post("/v1/executions", json=body)
        assert answer.status_code == 422
        assert pointer in {each["pointer"] for each in answer.json()["errors"]}
    unknown = await http.post("/v1/executions", json={"workflow": "nothing"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "DS-130")
    unreadable = await http.post("/v1/executions", content=b"{", headers={"content-type": "application/json"})
    assert (unreadable.status_code, unreadable.json()["code"]) == (400, "DS-190")


async def test_the_input_of_a_task_that_was_handed_over_is_reserved_before_it_is_read(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a blob of the script, and of the task's execution once that has ended."""
    hold, held = responses._hold, list[int]()

    async def noting(services: ServerServices, size: int) -> None:
        held.append(size)
        await hold(services, size)

    await deploy_script(http, 'workflow leaves(inputs) {\n  Task.run("echo", inputs)\n  return "over"\n}\n')
    text = "x" * 2_000_000
    answer = await http.post("/v1/executions", json={"workflow": "leaves", "input": {"text": text}})
    script = answer.json()["id"]
    await ended(http, script)
    [task] = (await http.get(f"/v1/executions?parent={script}")).json()["items"]
    monkeypatch.setattr(responses, "_hold", noting)

    for action in ("", "/cancel"):
        if action:
            await http.post(f"/v1/executions/{task['id']}{action}")
        held.clear()
        found = (await http.get(f"/v1/executions/{task['id']}")).json()
        assert found["input"] == {"text": text}
        assert held[0] > len(text)
    assert found["state"] == "CANCELLED"
