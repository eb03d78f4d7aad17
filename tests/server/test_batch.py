"""Several starts in one call: each is done or refused for itself."""

from __future__ import annotations

from typing import Any

import httpx

from dalsegno.app import App

SUM: dict[str, Any] = {
    "name": "sum",
    "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    "nodes": [
        {
            "id": "add",
            "type": "edit",
            "parameters": {"assignments": [{"name": "n", "value": "{{ input.n + 1 }}"}]},
        }
    ],
    "output": "$add.n",
}


def one(n: Any, **more: Any) -> dict[str, Any]:
    return {"workflow": "sum", "input": {"n": n}, **more}


async def batch(http: httpx.AsyncClient, *starts: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    reply = await http.post("/v1/executions/batch", json={"starts": list(starts)}, **more)
    assert reply.status_code == 200, reply.text
    results: list[dict[str, Any]] = reply.json()["results"]
    assert len(results) == len(starts)
    return results


async def test_each_start_has_its_own_outcome_in_order(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=SUM)
    wrong = [one("x"), {"workflow": "nothing", "input": {}}]
    results = await batch(http, one(1), *wrong, one(2, tags={"a": "b"}, priority=3))

    assert [result["new"] for result in results] == [True, None, None, True]
    assert [(result["problem"] or {}).get("code") for result in results] == [None, "DS-120", "DS-130", None]
    assert "input_schema" in results[1]["problem"]["detail"]
    first, last = [(await http.get(f"/v1/executions/{results[place]['id']}/wait")).json() for place in (0, 3)]
    assert (first["output"], last["output"]) == (2, 3)
    assert (last["tags"], last["priority"]) == ({"a": "b"}, 3)


async def test_a_batch_that_is_sent_again_starts_nothing(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=SUM)
    starts = [one(n, idempotency_key=f"k{n}") for n in range(150)]
    first, second = await batch(http, *starts), await batch(http, *starts)

    assert [each["id"] for each in first] == [each["id"] for each in second]
    assert {each["new"] for each in first} == {True}
    assert {each["new"] for each in second} == {False}
    [other] = await batch(http, one(7, idempotency_key="k1"))
    assert other["problem"]["status"] == 409
    assert len((await http.get("/v1/executions?limit=500")).json()["items"]) == 150


async def test_starts_can_be_pending(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=SUM)
    results = await batch(http, one(1, pending=True), one(2, delay="1h"))
    states = [(await http.get(f"/v1/executions/{each['id']}")).json()["state"] for each in results]
    assert states == ["PENDING", "PENDING"]


async def test_a_malformed_batch_is_refused_as_a_whole(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=SUM)
    for body in (
        {"starts": []},
        {"starts": [one(1), {"workflow": "sum", "unknown": 1}]},
        {"starts": [one(1), 7]},
        {"starts": [one(1)] * 1001},
        {"starts": [one(1), {"input": {}}]},
        {"starts": {"workflow": "sum"}},
    ):
        reply = await http.post("/v1/executions/batch", json=body)
        assert reply.status_code == 422, reply.text
    assert (await http.get("/v1/executions")).json()["items"] == []
    assert "/body/starts/1" in (await http.post("/v1/executions/batch", json={"starts": [one(1), 7]})).text


async def test_large_inputs_are_kept_as_they_are(http: httpx.AsyncClient, app: App) -> None:
    """A body that is read in a process."""
    await http.post("/v1/definitions", json=SUM)
    starts = [{**one(n), "input": {"n": n, "text": "ä" * 40_000}} for n in range(5)]
    results = await batch(http, *starts)
    for n, result in enumerate(results):
        view = (await http.get(f"/v1/executions/{result['id']}")).json()
        assert view["input"] == starts[n]["input"]
