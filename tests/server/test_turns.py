"""``/v1/executions/{id}/turns``: recorded turns over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.server.test_waiting import started

SCRIPT = """\
const twice = await Task.run("double", inputs.n)
let sum = twice
sum = sum + await Task.run("double", twice)
await Signal.when("approved")
return sum
"""


@pytest.fixture(autouse=True)
def journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workflows that say nothing keep their last turns."""
    monkeypatch.setenv("DALSEGNO_JOURNAL", "failures")


@pytest.fixture
async def execution(http: httpx.AsyncClient) -> str:
    """An execution of a script that has run three turns, and waits for a signal."""
    body = {"source": SCRIPT, "kind": "script", "name": "doubles"}
    assert (await http.post("/v1/definitions", json=body)).status_code == 201
    reply = await http.post("/v1/executions", json={"workflow": "doubles", "input": {"n": 2}})
    found = str(reply.json()["id"])
    for _ in range(500):
        picture = (await http.get(f"/v1/executions/{found}/picture")).json()
        if picture is not None and picture["line"] == 4:
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(picture)


async def listed(http: httpx.AsyncClient, execution: str, query: str = "") -> dict[str, Any]:
    reply = await http.get(f"/v1/executions/{execution}/turns{query}")
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


async def test_turns_are_listed_with_their_lines(http: httpx.AsyncClient, execution: str) -> None:
    found = await listed(http, execution)
    assert [(one["number"], one["line"], one["awaits"]) for one in found["turns"]] == [
        (1, 1, "task double"), (2, 3, "task double"), (3, 4, "signal approved"),
    ]  # fmt: skip
    assert found["turns"][1]["source"] == 'sum = sum + await Task.run("double", twice)'
    assert (found["next"], found["total"]) == (None, 3)


async def test_pages_go_in_both_directions(http: httpx.AsyncClient, execution: str) -> None:
    def numbers(page: dict[str, Any]) -> list[int]:
        return [one["number"] for one in page["turns"]]

    first = await listed(http, execution, "?limit=2")
    assert (numbers(first), first["next"], first["total"]) == ([1, 2], 3, 3)
    assert numbers(await listed(http, execution, "?limit=2&from=3")) == [3]
    newest = await listed(http, execution, "?limit=1&order=newest")
    assert (numbers(newest), newest["next"]) == ([3], 2)
    assert numbers(await listed(http, execution, "?from=2&order=newest")) == [2, 1]
    assert (await http.get(f"/v1/executions/{execution}/turns?order=random")).status_code == 422


async def test_one_turn_in_full(http: httpx.AsyncClient, execution: str) -> None:
    reply = await http.get(f"/v1/executions/{execution}/turns/2")
    seen = reply.json()
    assert (seen["state"], seen["line"], seen["missing"]) == ("suspended", 3, None)
    [received] = seen["received"]
    assert (received["name"], received["result"]["value"]) == ("double", 4)
    [asked] = seen["asked"]
    assert (asked["kind"], asked["promise"], asked["input"]["value"]) == ("task", 1, 4)
    variables = {one["name"]: one for one in seen["functions"][0]["variables"]}
    assert (variables["twice"]["change"], variables["twice"]["now"]["value"]) == ("added", 4)


async def test_a_turn_that_is_not_kept_and_an_execution_without_turns(
    http: httpx.AsyncClient, execution: str
) -> None:
    missing = await http.get(f"/v1/executions/{execution}/turns/9")
    assert missing.status_code == 404
    assert "kept are 1 to 3" in missing.json()["detail"]
    graph = await started(http)
    assert (await listed(http, graph))["turns"] == []
    assert (await http.get(f"/v1/executions/{graph}/turns/1")).status_code == 404
    assert (await http.get("/v1/executions/0123/turns")).status_code == 404
