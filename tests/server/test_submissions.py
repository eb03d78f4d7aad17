"""The two-step start over HTTP, and delayed starts: submit, trigger, status, results."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from dalsegno.server.schemas.executions import EXAMPLE_DOCUMENT
from tests.server.test_definitions import GRAPH
from tests.server.test_executions import WAITS, deploy_script, ended

SEED: dict[str, Any] = {
    "name": "fan-in",
    "dag": {
        "nodes": [
            {"id": "A", "handler": "input", "dependencies": [], "config": {}},
            {"id": "B", "handler": "task", "dependencies": ["A"], "config": {"task": "double", "input": 1}},
            {"id": "C", "handler": "task", "dependencies": ["A"], "config": {"task": "double", "input": 2}},
            {
                "id": "D",
                "handler": "task",
                "dependencies": ["A"],
                "config": {"task": "double", "input": "{{ $A.n }}"},
            },
            {"id": "E", "handler": "output", "dependencies": ["B", "C", "D"], "config": {}},
        ]
    },
}
"""The seed design's form, and its example: node E depends on nodes B, C and D."""


async def submit(http: httpx.AsyncClient, document: Any = SEED, **fields: Any) -> str:
    answer = await http.post("/v1/workflows", json={**document, **fields})
    assert answer.status_code == 201, answer.text
    assert answer.json()["state"] == "PENDING"
    execution: str = answer.json()["execution_id"]
    assert answer.headers["location"] == f"/v1/workflows/{execution}/status"
    return execution


async def test_submit_trigger_status_results(http: httpx.AsyncClient) -> None:
    execution = await submit(http, input={"n": 21})
    status = (await http.get(f"/v1/workflows/{execution}/status")).json()
    assert status["state"] == "PENDING"
    assert {name: node["state"] for name, node in status["nodes"].items()} == dict.fromkeys(
        "ABCDE", "PENDING"
    )

    triggered = await http.post(f"/v1/workflows/{execution}/trigger")

    assert triggered.status_code == 200, triggered.text
    assert triggered.json()["execution_id"] == execution
    assert triggered.json()["state"] in ("RUNNING", "COMPLETED")
    await ended(http, execution)
    status = (await http.get(f"/v1/workflows/{execution}/status")).json()
    assert (status["state"], status["workflow"], status["version"]) == ("COMPLETED", "fan-in", 1)
    assert {name: node["state"] for name, node in status["nodes"].items()} == dict.fromkeys(
        "ABCDE", "COMPLETED"
    )
    results = (await http.get(f"/v1/workflows/{execution}/results")).json()
    assert results["results"] == {"A": {"n": 21}, "B": 2, "C": 4, "D": 42, "E": {"B": 2, "C": 4, "D": 42}}
    assert results["output"] == {"B": 2, "C": 4, "D": 42}
    assert results["error"] is None


async def test_the_references_own_example_runs(http: httpx.AsyncClient) -> None:
    execution = await submit(http, EXAMPLE_DOCUMENT, input={"name": "Ada"})
    await http.post(f"/v1/workflows/{execution}/trigger")
    await ended(http, execution)
    results = (await http.get(f"/v1/workflows/{execution}/results")).json()["results"]
    assert results["german"]["message"] == "Hallo, Ada!"
    assert set(results["both"]) == {"english", "german"}


async def test_the_triggers_input_replaces_the_submitted_one(http: httpx.AsyncClient) -> None:
    execution = await submit(http, input={"n": 1})
    await http.post(f"/v1/workflows/{execution}/trigger", json={"input": {"n": 5}})
    found = await ended(http, execution)
    assert (found["input"], found["output"]["D"]) == ({"n": 5}, 10)


async def test_a_second_trigger_is_the_first(http: httpx.AsyncClient) -> None:
    execution = await submit(http, input={"n": 1})
    answers = await asyncio.gather(
        *(http.post(f"/v1/workflows/{execution}/trigger", json={"input": {"n": 5}}) for _ in range(10))
    )
    assert {answer.status_code for answer in answers} == {200}
    await ended(http, execution)
    assert (await http.post(f"/v1/workflows/{execution}/trigger")).status_code == 200
    events = (await http.get(f"/v1/executions/{execution}/events")).json()["events"]
    assert [each["kind"] for each in events].count("ExecutionStarted") == 1
    other = await http.post(f"/v1/workflows/{execution}/trigger", json={"input": {"n": 6}})
    assert other.status_code == 409
    assert "it has begun (COMPLETED)" in other.json()["detail"]


async def test_bad_documents_and_inputs_are_refused_at_submit(http: httpx.AsyncClient) -> None:
    bad = {"name": "x", "dag": {"nodes": [{"id": "a", "handler": "nonsense", "dependencies": ["b"]}]}}
    answer = await http.post("/v1/workflows", json=bad)
    assert answer.status_code == 422
    assert "/dag/nodes/0" in answer.text
    strict = {**SEED, "input_schema": {"type": "object", "required": ["n"]}}
    answer = await http.post("/v1/workflows", json={**strict, "input": {"m": 1}})
    assert (answer.status_code, answer.json()["code"]) == (422, "DS-120")
    execution = await submit(http, strict, input={"n": 1})
    answer = await http.post(f"/v1/workflows/{execution}/trigger", json={"input": {}})
    assert answer.status_code == 422
    assert (await http.get(f"/v1/executions/{execution}")).json()["state"] == "PENDING"


@pytest.mark.parametrize("path", ["status", "results"])
async def test_unknown_executions_are_not_found(http: httpx.AsyncClient, path: str) -> None:
    assert (await http.get(f"/v1/workflows/nowhere/{path}")).status_code == 404
    assert (await http.post("/v1/workflows/nowhere/trigger")).status_code == 404


async def test_the_same_key_is_the_same_submission(http: httpx.AsyncClient) -> None:
    first = await http.post("/v1/workflows", json=SEED, headers={"Idempotency-Key": "k"})
    again = await http.post("/v1/workflows", json=SEED, headers={"Idempotency-Key": "k"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["execution_id"] == again.json()["execution_id"]


async def test_the_version_is_the_one_of_the_submission(http: httpx.AsyncClient) -> None:
    execution = await submit(http, input={"n": 1})
    newer = {**SEED, "description": "changed", "timeout": "1h"}
    assert (await http.post("/v1/definitions", json=newer)).json()["version"] == 2
    await http.post(f"/v1/workflows/{execution}/trigger")
    assert (await ended(http, execution))["version"] == 1


async def test_a_cancelled_submission_cannot_be_triggered(http: httpx.AsyncClient) -> None:
    execution = await submit(http)
    cancelled = await http.post(f"/v1/executions/{execution}/cancel")
    assert cancelled.json()["state"] == "CANCELLED"
    answer = await http.post(f"/v1/workflows/{execution}/trigger")
    assert (answer.status_code, "it was cancelled" in answer.json()["detail"]) == (409, True)


async def test_pending_executions_are_listed_explained_and_not_paused(http: httpx.AsyncClient) -> None:
    execution = await submit(http)
    listed = (await http.get("/v1/executions", params={"state": "PENDING"})).json()["items"]
    assert [each["id"] for each in listed] == [execution]
    [reason] = (await http.get(f"/v1/executions/{execution}/why")).json()["reasons"]
    assert (reason["kind"], reason["sentence"]) == ("trigger", "it was submitted and waits to be triggered")
    answer = await http.post(f"/v1/executions/{execution}/pause")
    assert (answer.status_code, "it has not begun" in answer.json()["detail"]) == (409, True)


async def test_a_delayed_start_waits_for_its_time(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=GRAPH)
    answer = await http.post("/v1/executions", json={"workflow": "sum", "input": {"n": 2}, "delay": 0.2})
    assert (answer.status_code, answer.json()["state"]) == (201, "PENDING")
    found = await ended(http, answer.json()["id"])
    assert found["state"] == "COMPLETED"


async def test_a_delayed_script_is_explained_and_begins_early_when_triggered(http: httpx.AsyncClient) -> None:
    await deploy_script(http, WAITS)
    at = datetime.now(UTC) + timedelta(hours=1)
    answer = await http.post("/v1/executions", json={"workflow": "waits", "start_at": at.isoformat()})
    execution = answer.json()["id"]
    [reason] = (await http.get(f"/v1/executions/{execution}/why")).json()["reasons"]
    assert reason["kind"] == "timer"
    assert datetime.fromisoformat(reason["due"]) == pytest.approx(at, abs=timedelta(milliseconds=1))
    assert (await http.get(f"/v1/executions/{execution}/picture")).status_code == 200
    await http.post(f"/v1/executions/{execution}/signals", json={"name": "go", "payload": "early"})

    triggered = await http.post(f"/v1/executions/{execution}/trigger")

    assert triggered.json()["state"] == "RUNNING"
    assert (await ended(http, execution))["output"] == "early"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"delay": "soon"}, "'delay': 'soon'"),
        ({"delay": "10m", "start_at": "2030-01-01T00:00:00Z"}, "either 'delay' or 'start_at'"),
        ({"start_at": "tomorrow"}, "start_at"),
        ({"delay": -1}, "delay"),
    ],
)
async def test_impossible_times_are_refused(
    http: httpx.AsyncClient, fields: dict[str, Any], said: str
) -> None:
    await http.post("/v1/definitions", json=GRAPH)
    answer = await http.post("/v1/executions", json={"workflow": "sum", "input": {"n": 1}, **fields})
    assert answer.status_code == 422
    assert said in answer.text


async def test_a_time_that_has_passed_means_now(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=GRAPH)
    body = {"workflow": "sum", "input": {"n": 1}, "start_at": "2020-01-01T00:00:00"}
    answer = await http.post("/v1/executions", json=body)
    assert (await ended(http, answer.json()["id"]))["state"] == "COMPLETED"
