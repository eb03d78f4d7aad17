"""Looking closely: what the engine holds of an execution, and definitions by content."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import httpx

from tests.server.test_waiting import WAITS, started

SCRIPT = 'const twice = await Task.run("double", inputs.n)\nawait Signal.when("approved")\nreturn twice\n'


async def until_parked(http: httpx.AsyncClient, execution: str) -> dict[str, Any]:
    for _ in range(500):
        seen: dict[str, Any] = (await http.get(f"/v1/executions/{execution}/inspection?things=true")).json()
        machine = seen["machine"]
        if any(token["awaits"] for token in seen["tokens"]) or (machine and machine["signals"]):
            return seen
        await asyncio.sleep(0.01)
    raise AssertionError(seen)


async def test_a_graph_shows_its_tokens_and_what_they_wait_for(http: httpx.AsyncClient) -> None:
    seen = await until_parked(http, await started(http))
    (token,) = seen["tokens"]
    assert (token["node"], token["state"], token["awaits"]) == ("go", "parked", "signal:go")
    assert token["awaiting"]["due"] is not None
    assert seen["held"] is True
    assert "default" in seen["served"]
    assert seen["execution"]["state"] == "RUNNING"


async def test_a_script_shows_its_machine(http: httpx.AsyncClient) -> None:
    body = {"source": SCRIPT, "kind": "script", "name": "doubles"}
    assert (await http.post("/v1/definitions", json=body)).status_code == 201
    reply = await http.post("/v1/executions", json={"workflow": "doubles", "input": {"n": 2}})
    seen = await until_parked(http, reply.json()["id"])
    assert seen["machine"]["signals"] == ["approved"]
    assert seen["machine"]["line"] == 2
    assert [thing["kind"] for thing in seen["machine"]["things"]] == ["signal"]


async def test_an_ended_execution_is_no_longer_held(http: httpx.AsyncClient) -> None:
    execution = await started(http)
    await http.post(f"/v1/executions/{execution}/cancel")
    seen = (await http.get(f"/v1/executions/{execution}/inspection")).json()
    assert seen["execution"]["state"] == "CANCELLED"
    assert (await http.get("/v1/executions/0123/inspection")).status_code == 404


async def test_a_program_by_its_content(http: httpx.AsyncClient) -> None:
    execution = await started(http)
    digest = (await http.get(f"/v1/executions/{execution}")).json()["definition"]
    program = (await http.get(f"/v1/programs/{digest}")).json()
    assert (program["name"], program["version"], program["kind"]) == ("waits", 1, "graph")
    assert json.loads(base64.b64decode(program["stored"]))["nodes"][0]["id"] == WAITS["nodes"][0]["id"]
    assert (await http.get("/v1/programs/none")).status_code == 404
