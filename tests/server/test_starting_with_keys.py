"""On a server with keys: what may be set up by whom, and what comes in without a key."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from dalsegno.admin.webhook_signatures import PRESETS, sign
from tests.server.approvals.test_approvals import asked, filled, graph, link_for
from tests.server.test_webhooks import ECHO, SECRET


async def make_key(http: httpx.AsyncClient, scope: str, **headers: str) -> dict[str, str]:
    answer = await http.post("/v1/keys", json={"name": scope, "scopes": [scope]}, headers=headers)
    assert answer.status_code == 201, answer.text
    return {"Authorization": f"Bearer {answer.json()['key']}"}


async def test_deliveries_and_links_need_no_key_and_everything_else_does(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DALSEGNO_SECRET_KEY", "a passphrase of the tests")
    execution = await asked(http, graph())
    url = await link_for(http, execution)
    await http.post("/v1/definitions", json=ECHO)
    setting = {"path": "in", "workflow": "echo", "secret": SECRET}
    await http.put("/v1/webhooks/in", json=setting)
    admin = await make_key(http, "admin")
    runs = await make_key(http, "run", **admin)

    foreign = {"Host": "tunnel.example.com", **sign(PRESETS["github"], SECRET, b"hello", 0.0, "")}
    taken = await http.post("/v1/hooks/in", content=b"hello", headers=foreign)
    assert taken.status_code == 202, taken.text
    assert (await http.post("/v1/hooks/in", content=b"hello")).status_code == 403
    assert (await http.get(url)).status_code == 200
    other_site = {"Origin": "https://evil.example"}
    assert (await http.post(url, data=filled(url, "approved"), headers=other_site)).status_code == 403
    assert (await http.post(url, data=filled(url, "approved"))).status_code == 200

    for method, path in (
        ("POST", "/v1/approvals/links"),
        ("GET", "/v1/approvals"),
        ("GET", "/v1/webhooks"),
        ("GET", "/v1/alerts"),
        ("GET", "/v1/schedules"),
    ):
        assert (await http.request(method, path)).status_code == 401, path
    for path, body in (("webhooks/in", setting), ("alerts/ops", {"mail": ["a@example.com"]})):
        assert (await http.put(f"/v1/{path}", json=body, headers=runs)).status_code == 403
        assert (await http.put(f"/v1/{path}", json=body, headers=admin)).status_code in (200, 201)


async def test_a_decision_without_a_name_carries_that_of_the_key(http: httpx.AsyncClient) -> None:
    execution = await asked(http, graph())
    key = await make_key(http, "admin")
    path = f"/v1/executions/{execution}/approvals/gate"
    answer = await http.post(path, json={"decision": "approved"}, headers=key)
    assert answer.json()["by"] == "admin"


async def test_links_are_not_written_down_in_the_audit_log(http: httpx.AsyncClient) -> None:
    execution = await asked(http, graph())
    url = await link_for(http, execution)
    await http.post(url, data=filled(url, "approved"))
    for _ in range(100):
        noted = (await http.get("/v1/audit")).text
        if "approvals.use_link" in noted:
            break
        await asyncio.sleep(0.02)
    assert "approvals.use_link" in noted
    assert url.rpartition("/")[2] not in noted
