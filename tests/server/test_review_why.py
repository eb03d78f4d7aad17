"""`why` in detail: which branches a join still waits for, and that nobody serves a queue."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from dalsegno.app import App

WAIT = {"type": "wait", "parameters": {"resume": "signal", "signal": "go"}}
LOG = {"type": "log", "parameters": {"message": "hi"}}
JOIN = {
    "name": "meeting",
    "nodes": [
        {"id": "early", **LOG},
        {"id": "late", **WAIT},
        {"id": "later", **WAIT},
        {"id": "both", "type": "merge", "parameters": {}},
    ],
    "edges": [{"src": name, "dst": "both"} for name in ("early", "late", "later")],
}
SPLIT = {
    "name": "parts",
    "nodes": [
        {"id": "each", "type": "split", "parameters": {"input_array": "{{ $trigger.rows }}"}},
        {"id": "gate", "type": "wait", "parameters": {"resume": "signal", "signal": "go{{ $item }}"}},
        {"id": "all", "type": "aggregator", "parameters": {}},
    ],
    "edges": [{"src": "each", "dst": "gate"}, {"src": "gate", "dst": "all"}],
}
ELSEWHERE = 'workflow asks(inputs) {\n  return await Task.with({queue: "moon"}).run("dig", {})\n}\n'


async def reasons(http: httpx.AsyncClient, execution: str, kind: str, done: int = 0) -> list[dict[str, Any]]:
    """Those of one kind, as soon as there are any (and so many have arrived)."""
    for _ in range(1000):
        found = (await http.get(f"/v1/executions/{execution}/why")).json()["reasons"]
        fitting = [each for each in found if each["kind"] == kind and (each["arrived"] or 0) >= done]
        if fitting:
            return fitting
        await asyncio.sleep(0.01)
    raise AssertionError(f"no reason of kind {kind}: {found}")


async def test_a_join_names_the_nodes_it_waits_for(http: httpx.AsyncClient) -> None:
    execution = (await http.post("/v1/executions", json={"definition": JOIN})).json()["id"]

    [barrier] = await reasons(http, execution, "barrier", done=1)

    assert barrier["open"] == ["'late'", "'later'"]
    assert barrier["sentence"] == "node 'both' waits for 2 more of 3 branches: 'late', 'later'"


async def test_an_aggregator_names_the_items_it_waits_for(http: httpx.AsyncClient) -> None:
    body = {"definition": SPLIT, "input": {"rows": list(range(30))}}
    answer = await http.post("/v1/executions", json=body)
    assert answer.status_code == 201, answer.text
    execution = answer.json()["id"]
    for row in (0, 2):
        await http.post(f"/v1/executions/{execution}/signals", json={"name": f"go{row}"})

    [barrier] = await reasons(http, execution, "barrier", done=2)

    assert barrier["open"][:3] == ["item 1", "item 3", "item 4"]
    assert len(barrier["open"]) == 20
    assert barrier["sentence"].endswith("item 21 and 8 more")


async def test_a_task_that_nobody_serves_says_so(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json={"source": ELSEWHERE, "kind": "script"})
    execution = (await http.post("/v1/executions", json={"workflow": "asks"})).json()["id"]

    [queued] = [each for each in await reasons(http, execution, "queued") if each["node"]]

    assert (queued["node"], queued["queue"]) == ("dig", "moon")
    assert "task 'dig' waits for a worker that serves queue 'moon'" in queued["sentence"]
    assert queued["sentence"].endswith("; no worker serves queue 'moon' now")


async def test_a_task_whose_queue_is_served_only_waits(app: App, http: httpx.AsyncClient) -> None:
    """The worker of this process serves the default queue; it is at work on another task meanwhile."""
    await http.post("/v1/definitions", json={"source": ELSEWHERE, "kind": "script"})
    execution = (await http.post("/v1/executions", json={"workflow": "asks"})).json()["id"]
    await reasons(http, execution, "queued")
    claim = {"worker": "miner", "queues": ["moon"], "tasks": ["nothing-of-this-name"], "wait": 0.1}
    answer = await http.post("/v1/tasks/claim", json=claim)
    assert answer.status_code == 200, answer.text

    [queued] = await reasons(http, execution, "queued")
    assert "no worker" not in queued["sentence"]
