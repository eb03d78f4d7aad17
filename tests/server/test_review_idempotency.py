"""`Idempotency-Key`: a call whose answer was lost is sent again, and counts once."""

from __future__ import annotations

import asyncio

import httpx
import pytest

WAITING = {
    "name": "patient",
    "nodes": [{"id": "w", "type": "wait", "parameters": {"resume": "signal", "signal": "go"}}],
}
TWO_STEPS = {
    "name": "two",
    "nodes": [
        {"id": "a", "type": "log", "parameters": {"message": "a"}},
        {"id": "b", "type": "log", "parameters": {"message": "b"}},
    ],
    "edges": [{"src": "a", "dst": "b"}],
}
FAILING = {"name": "unlucky", "nodes": [{"id": "t", "type": "task", "parameters": {"task": "fail"}}]}
KEY = {"Idempotency-Key": "once"}


async def received(http: httpx.AsyncClient, execution: str) -> int:
    page = (await http.get(f"/v1/executions/{execution}/events")).json()
    return sum(event["kind"] == "SignalReceived" for event in page["events"])


async def test_a_signal_with_the_same_key_counts_once(http: httpx.AsyncClient) -> None:
    execution = (await http.post("/v1/executions", json={"definition": WAITING})).json()["id"]
    for key in ("first", "first", "second"):
        answer = await http.post(
            f"/v1/executions/{execution}/signals",
            json={"name": "later", "payload": 1},
            headers={"Idempotency-Key": key},
        )
        assert answer.status_code == 202, answer.text

    assert await received(http, execution) == 2


async def ended(http: httpx.AsyncClient, body: dict[str, object]) -> str:
    execution: str = (await http.post("/v1/executions", json=body)).json()["id"]
    await http.get(f"/v1/executions/{execution}/wait", params={"seconds": 30})
    return execution


@pytest.mark.parametrize("body", [{"definition": FAILING}, {"workflow": "failing"}])
async def test_a_retry_with_the_same_key_is_the_same_new_execution(
    http: httpx.AsyncClient, body: dict[str, object]
) -> None:
    await http.post("/v1/definitions", json={"source": "throw {code: 'X', message: 'no'}", "name": "failing"})
    old = await ended(http, body)

    first = await http.post(f"/v1/executions/{old}/retry", headers=KEY)
    again = await http.post(f"/v1/executions/{old}/retry", headers=KEY)
    other = await http.post(f"/v1/executions/{old}/retry", headers={"Idempotency-Key": "twice"})

    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 201), first.text
    assert first.json()["id"] == again.json()["id"] == first.headers["Location"].rpartition("/")[2]
    assert len({old, first.json()["id"], other.json()["id"]}) == 3
    assert first.json()["parent"] == old


async def test_a_rerun_with_the_same_key_asks_for_the_same(http: httpx.AsyncClient) -> None:
    old = await ended(http, {"definition": TWO_STEPS})
    path = f"/v1/executions/{old}/rerun"

    first = await http.post(path, json={"nodes": ["b"]}, headers=KEY)
    again = await http.post(path, json={"nodes": ["b"]}, headers=KEY)
    assert (first.status_code, again.status_code) == (201, 200), first.text
    assert first.json()["id"] == again.json()["id"]
    await http.get(f"/v1/executions/{first.json()['id']}/wait", params={"seconds": 30})
    assert (await http.post(path, json={"nodes": ["b"]}, headers=KEY)).status_code == 200

    for other in ({"nodes": ["a"]}, {"nodes": ["b"], "context": {"$a": 1}}):
        refused = await http.post(path, json=other, headers=KEY)
        assert (refused.status_code, refused.json()["code"]) == (409, "DS-161"), refused.text
        assert first.json()["id"] in refused.json()["detail"]


async def test_a_rerun_that_stands_in_line_knows_its_key(http: httpx.AsyncClient) -> None:
    one_at_a_time = {**TWO_STEPS, "name": "narrow", "concurrency": {"limit": 1}}
    old = await ended(http, {"definition": one_at_a_time})
    path = f"/v1/executions/{old}/rerun"

    first = await http.post(path, json={"nodes": ["b"]}, headers=KEY)
    again = await http.post(path, json={"nodes": ["b"]}, headers=KEY)
    refused = await http.post(path, json={"nodes": ["a"]}, headers=KEY)

    assert (first.status_code, again.status_code, refused.status_code) == (201, 200, 409), first.text
    assert first.json()["id"] == again.json()["id"]


async def test_a_schedule_is_triggered_once_by_one_key(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json={"document": TWO_STEPS})
    for name in ("nightly", "weekly"):
        made = await http.put(f"/v1/schedules/{name}", json={"timing": "0 2 * * *", "workflow": "two"})
        assert made.status_code == 201, made.text

    first = await http.post("/v1/schedules/nightly/trigger", headers=KEY)
    again = await http.post("/v1/schedules/nightly/trigger", headers=KEY)
    other = await http.post("/v1/schedules/weekly/trigger", headers=KEY)

    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 201), first.text
    assert first.json()["id"] == again.json()["id"] != other.json()["id"]


async def test_the_same_key_with_another_input_is_refused(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json={"document": TWO_STEPS})
    ours = {"workflow": "two", "input": {"a": 1, "b": [2]}}

    first = await http.post("/v1/executions", json=ours, headers=KEY)
    reordered = await http.post("/v1/executions", json={**ours, "input": {"b": [2], "a": 1}}, headers=KEY)
    assert (first.status_code, reordered.status_code) == (201, 200), first.text
    assert first.json()["id"] == reordered.json()["id"]

    refused = await http.post("/v1/executions", json={**ours, "input": {"a": 2}}, headers=KEY)
    assert (refused.status_code, refused.json()["code"]) == (409, "DS-161")
    assert "this key was used with another input" in refused.json()["detail"]
    assert first.json()["id"] in refused.json()["detail"]


async def test_of_two_at_once_with_other_inputs_one_is_refused(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json={"document": TWO_STEPS})
    calls = (
        http.post("/v1/executions", json={"workflow": "two", "input": {"n": n}}, headers=KEY)
        for n in range(5)
    )
    statuses = sorted(answer.status_code for answer in await asyncio.gather(*calls))
    assert statuses == [201, 409, 409, 409, 409]


async def test_a_submission_is_compared_with_what_was_submitted(http: httpx.AsyncClient) -> None:
    submitted = {**TWO_STEPS, "input": {"a": 1}}
    first = await http.post("/v1/workflows", json=submitted, headers=KEY)
    refused = await http.post("/v1/workflows", json={**TWO_STEPS, "input": {"a": 2}}, headers=KEY)
    assert (first.status_code, refused.status_code) == (201, 409), first.text
    assert refused.json()["code"] == "DS-161"

    execution = first.json()["execution_id"]
    await http.post(f"/v1/workflows/{execution}/trigger", json={"input": {"a": 3}})
    again = await http.post("/v1/workflows", json=submitted, headers=KEY)
    assert (again.status_code, again.json()["execution_id"]) == (200, execution), again.text
