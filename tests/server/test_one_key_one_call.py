"""A key belongs to one call: to its content, and to one answer that says 201. A request says one thing only once."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

KEY = {"Idempotency-Key": "once"}
WAITING = {
    "name": "patient",
    "nodes": [{"id": "w", "type": "wait", "parameters": {"resume": "signal", "signal": "go"}}],
}


def logging(message: str) -> dict[str, Any]:
    return {"name": "told", "nodes": [{"id": "a", "type": "log", "parameters": {"message": message}}]}


async def versions(http: httpx.AsyncClient) -> list[int]:
    return [each["version"] for each in (await http.get("/v1/definitions/told/versions")).json()]


def refused_key(answer: httpx.Response) -> bool:
    return (answer.status_code, answer.json()["code"]) == (409, "DS-161")


async def test_the_same_key_with_another_definition_stores_nothing(http: httpx.AsyncClient) -> None:
    first = await http.post("/v1/executions", json={"definition": logging("one")}, headers=KEY)
    again = await http.post("/v1/executions", json={"definition": logging("one")}, headers=KEY)
    other = await http.post("/v1/executions", json={"definition": logging("two")}, headers=KEY)

    assert (first.status_code, again.status_code) == (201, 200), first.text
    assert first.json()["id"] == again.json()["id"]
    assert refused_key(other), other.text
    assert first.json()["id"] in other.json()["detail"]
    assert await versions(http) == [1]


async def test_a_submission_with_the_same_key_and_another_definition(http: httpx.AsyncClient) -> None:
    first = await http.post("/v1/workflows", json=logging("one"), headers=KEY)
    again = await http.post("/v1/workflows", json=logging("one"), headers=KEY)
    other = await http.post("/v1/workflows", json=logging("two"), headers=KEY)

    assert (first.status_code, again.status_code) == (201, 200), first.text
    assert refused_key(other), other.text
    assert await versions(http) == [1]


async def test_the_same_key_with_another_version_or_delay(http: httpx.AsyncClient) -> None:
    for message in ("one", "two"):
        await http.post("/v1/definitions", json=logging(message))
    first = await http.post("/v1/executions", json={"workflow": "told@1"}, headers=KEY)
    assert first.status_code == 201, first.text

    for other in (
        {"workflow": "told@2"},
        {"workflow": "told", "version": 2},
        {"workflow": "told", "delay": 5},
    ):
        assert refused_key(await http.post("/v1/executions", json=other, headers=KEY)), other
    for same in ({"workflow": "told@1"}, {"workflow": "told"}):  # which means the current version of its time
        assert (await http.post("/v1/executions", json=same, headers=KEY)).status_code == 200, same


async def test_a_delayed_start_is_the_same_when_it_is_sent_again(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=logging("one"))
    for when in ({"delay": "10m"}, {"start_at": "2090-01-01T00:00:00Z"}):
        body = {"workflow": "told", "idempotency_key": str(when), **when}
        answers = [await http.post("/v1/executions", json=body) for _ in range(2)]
        assert [each.status_code for each in answers] == [201, 200], answers[1].text
        assert refused_key(await http.post("/v1/executions", json={**body, next(iter(when)): None}))


async def test_of_many_at_once_with_one_key_one_is_new(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=logging("one"))
    for body in ({"workflow": "told"}, {"definition": logging("one"), "idempotency_key": "other"}):
        headers = {} if "idempotency_key" in body else KEY
        calls = [http.post("/v1/executions", json=body, headers=headers) for _ in range(15)]
        answers = await asyncio.gather(*calls)
        assert sorted(each.status_code for each in answers) == [200] * 14 + [201]
        assert len({each.json()["id"] for each in answers}) == 1


async def test_a_signal_whose_key_was_used_for_another_is_refused(http: httpx.AsyncClient) -> None:
    execution = (await http.post("/v1/executions", json={"definition": WAITING})).json()["id"]
    path = f"/v1/executions/{execution}/signals"
    large = {"text": "x" * 300_000}
    first = {"name": "early", "payload": {"a": 1, "b": 2}}

    assert (await http.post(path, json=first, headers=KEY)).status_code == 202
    same = {"name": "early", "payload": {"b": 2, "a": 1}}
    assert (await http.post(path, json=same, headers=KEY)).status_code == 202
    for other in ({"name": "early", "payload": 2}, {**first, "name": "late"}, {"name": "early"}):
        refused = await http.post(path, json=other, headers=KEY)
        assert refused_key(refused), refused.text
    for payload, status in ((large, 202), (large, 202), ({"text": "x" * 300_001}, 409)):
        answer = await http.post(path, json={"name": "early", "payload": payload, "id": "large"})
        assert answer.status_code == status, answer.text

    events = (await http.get(f"/v1/executions/{execution}/events")).json()["events"]
    assert sum(event["kind"] == "SignalReceived" for event in events) == 2


async def test_a_signal_that_was_taken_is_known_when_the_execution_has_ended(http: httpx.AsyncClient) -> None:
    execution = (await http.post("/v1/executions", json={"definition": WAITING})).json()["id"]
    path = f"/v1/executions/{execution}/signals"
    await http.post(path, json={"name": "go", "payload": 1}, headers=KEY)
    ended = await http.get(f"/v1/executions/{execution}/wait", params={"seconds": 30})
    assert ended.json()["state"] == "COMPLETED"

    assert (await http.post(path, json={"name": "go", "payload": 1}, headers=KEY)).status_code == 202
    assert refused_key(await http.post(path, json={"name": "go", "payload": 2}, headers=KEY))
    late = await http.post(path, json={"name": "go"}, headers={"Idempotency-Key": "late"})
    assert (late.status_code, late.json()["code"]) == (409, "DS-160")


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"workflow": "told@1", "version": 2}, ("'workflow'", "'version'")),
        ({"workflow": "told@latest", "version": 1}, ("'workflow'", "'version'")),
        ({"definition": logging("one"), "version": 7}, ("'definition'", "'version'")),
        ({"workflow": "told", "idempotency_key": "other"}, ("/body/idempotency_key", "Idempotency-Key")),
    ],
)
async def test_a_start_that_says_two_things_is_refused(
    http: httpx.AsyncClient, body: dict[str, Any], named: tuple[str, str]
) -> None:
    await http.post("/v1/definitions", json=logging("one"))
    refused = await http.post("/v1/executions", json=body, headers=KEY)
    assert refused.status_code == 422, refused.text
    assert all(name in refused.json()["detail"] for name in named)
    assert (await http.get("/v1/executions")).json()["items"] == []


async def test_the_same_thing_said_twice_is_no_contradiction(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=logging("one"))
    body = {"workflow": "told@1", "version": 1, "idempotency_key": "once"}
    assert (await http.post("/v1/executions", json=body, headers=KEY)).status_code == 201


async def test_a_signal_with_two_ids_is_refused(http: httpx.AsyncClient) -> None:
    execution = (await http.post("/v1/executions", json={"definition": WAITING})).json()["id"]
    path = f"/v1/executions/{execution}/signals"
    refused = await http.post(path, json={"name": "early", "id": "other"}, headers=KEY)
    assert refused.status_code == 422
    assert "/body/id" in refused.json()["detail"]


async def test_a_key_in_a_header_may_be_utf8(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=logging("one"))
    named = {"Idempotency-Key": "Schlüssel ä".encode()}
    first = await http.post("/v1/executions", json={"workflow": "told"}, headers=named)  # type: ignore[arg-type]
    again = await http.post("/v1/executions", json={"workflow": "told", "idempotency_key": "Schlüssel ä"})
    assert first.json()["idempotency_key"] == "Schlüssel ä"
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
