"""Executions whose id another program has chosen: up to 128 characters, everywhere an id goes."""

from __future__ import annotations

import json

import httpx
import pytest

from dalsegno.app import App
from dalsegno.ports.messages import ForeignMessage
from tests.wire.documents import LINEAR, WAIT
from tests.wire.master import message

pytestmark = pytest.mark.parametrize("store_url", ["memory", "sqlite"], indirect=True)
OTHERS = "Exec_2025-" + "x" * 118


async def adopt(app: App, execution: str, definition: dict[str, object]) -> None:
    body = json.dumps(message(execution, "start", definition)).encode()
    taken = await app.engine.intake.take(ForeignMessage(body, "test"))
    assert taken.outcome == "applied"


async def test_every_call_takes_a_long_id(http: httpx.AsyncClient, app: App) -> None:
    await adopt(app, OTHERS, LINEAR)
    base = f"/v1/executions/{OTHERS}"
    ended = await http.get(f"{base}/wait")
    assert ended.status_code == 200
    for call in ("", "/nodes", "/results", "/events", "/why"):
        reply = await http.get(base + call)
        assert reply.status_code == 200, (call, reply.text)
    shown = (await http.get(base)).json()
    assert (shown["id"], shown["state"], shown["tags"]["workflow_id"]) == (OTHERS, "COMPLETED", "wf-1")
    listed = (await http.get("/v1/executions", params={"tag": "workflow_id=wf-1"})).json()
    assert [each["id"] for each in listed["items"]] == [OTHERS]
    again = await http.post(f"{base}/retry")
    assert again.status_code in (201, 409), again.text


async def test_commands_take_a_long_id(http: httpx.AsyncClient, app: App) -> None:
    await adopt(app, OTHERS, WAIT)
    for command in ("pause", "resume", "cancel"):
        reply = await http.post(f"/v1/executions/{OTHERS}/{command}")
        assert reply.status_code < 300, (command, reply.text)
    assert (await http.get(f"/v1/executions/{OTHERS}")).json()["state"] == "CANCELLED"


async def test_an_adopted_definition_is_shown_and_is_not_listed(http: httpx.AsyncClient, app: App) -> None:
    await adopt(app, "e1", LINEAR | {"name": "checkout"})
    shown = (await http.get("/v1/executions/e1")).json()
    assert (await http.get("/v1/definitions")).json()["items"] == []
    assert (await http.get("/v1/definitions/checkout")).status_code == 404
    version = {"version": str(shown["version"])}
    found = await http.get(f"/v1/definitions/{shown['workflow']}", params=version)
    assert found.status_code == 200, found.text
    started = await http.post("/v1/executions", json={"workflow": shown["workflow"], "input": {}})
    assert started.status_code in (400, 404, 422)
