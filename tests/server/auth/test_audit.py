"""The audit log: who changed what; never bodies, never secrets, nothing lost when a server stops."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dalsegno.app import App
from dalsegno.errors import Unavailable
from dalsegno.server import ServerSettings
from dalsegno.server.application import create_application
from dalsegno.server.auth import audit as audits
from dalsegno.server.auth.audit import LOG, Entry
from dalsegno.server.http.request import without_secrets
from tests.server.auth.test_keys import bearer, make_key
from tests.server.conftest import LASTING
from tests.server.test_definitions import GRAPH


@pytest.fixture
def application(app: App) -> FastAPI:
    return create_application(app, ServerSettings(keys_seconds=0.0))


async def entries(http: httpx.AsyncClient, **params: Any) -> list[dict[str, Any]]:
    answer = await http.get("/v1/audit", params=params)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


async def test_every_mutating_call_is_noted_with_who_and_what(app: App, http: httpx.AsyncClient) -> None:
    http.headers.update(bearer(await make_key(app, "admin", name="ops")))
    started = await http.post("/v1/executions", json={"definition": GRAPH, "input": {"n": 31337}})
    execution = started.json()["id"]
    await http.post(f"/v1/executions/{execution}/signals?secret=in-query", json={"name": "x"})
    await http.get("/v1/executions")
    found = await entries(http)
    assert [(each["method"], each["path"], each["status"]) for each in found] == [
        ("POST", f"/v1/executions/{execution}/signals", found[0]["status"]),
        ("POST", "/v1/executions", 201),
    ]
    first = found[1]
    assert (first["who"], first["via"], first["action"]) == ("ops", "key", "executions.start")
    assert first["address"] == "127.0.0.1"
    assert first["key"] is not None
    assert first["at"].endswith("Z")


async def test_refusals_by_routes_are_noted_and_secrets_are_not(app: App, http: httpx.AsyncClient) -> None:
    key = await make_key(app, "admin", name="ops")
    reader = await make_key(app, "read", name="reader")
    await http.post("/v1/executions", json={"workflow": "none"}, headers=bearer(reader))
    await http.post("/v1/session", json={"key": key})
    await http.post("/v1/session", json={"key": "ds_guess"})
    http.cookies.clear()
    http.headers.update(bearer(key))
    answer = await http.get("/v1/audit")
    noted = [(each["who"], each["path"], each["status"]) for each in answer.json()["items"]]
    assert ("reader", "/v1/executions", 403) in noted
    assert ("ops", "/v1/session", 201) in noted
    assert ("nobody", "/v1/session", 401) in noted
    for secret in ("ds_guess", key.rpartition("_")[2]):
        assert secret not in answer.text
    assert (await http.get("/v1/audit", headers=bearer(reader))).status_code == 403


def test_a_token_in_a_path_is_not_written_down() -> None:
    assert without_secrets("/v1/approvals/links/very-secret-token") == "/v1/approvals/links/…"
    assert without_secrets("/v1/executions/0198f3/cancel") == "/v1/executions/0198f3/cancel"


async def test_what_changes_nothing_is_not_noted(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions/validate", json=GRAPH)
    await http.get("/v1/definitions")
    await http.post("/v1/executions", json={}, headers={"Origin": "https://evil.example"})
    await http.post("/v1/tasks/claim", json={})
    await http.post("/v1/hooks/nothing/there", json={})
    assert await entries(http) == []


async def test_the_log_is_paged_newest_first(http: httpx.AsyncClient) -> None:
    for number in range(5):
        await http.delete(f"/v1/keys/k{number}")
    first = (await http.get("/v1/audit", params={"limit": 3})).json()
    rest = (await http.get("/v1/audit", params={"limit": 3, "cursor": first["next"]})).json()
    noted = [each["path"] for page in (first, rest) for each in page["items"]]
    assert noted == [f"/v1/keys/k{number}" for number in (4, 3, 2, 1, 0)]
    assert rest["next"] is None
    for cursor in ("!!", "eHl6", "LTE", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5"):
        assert (await http.get("/v1/audit", params={"cursor": cursor})).status_code == 422


@LASTING
async def test_an_orderly_stop_loses_nothing(store_url: str) -> None:
    application = create_application(App(store_url))
    async with application.router.lifespan_context(application):
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await asyncio.gather(*(client.delete(f"/v1/keys/k{number}") for number in range(50)))
    again = create_application(App(store_url))
    async with again.router.lifespan_context(again):
        found = await again.state.services.client.stack.records.entries(LOG, limit=500)
    assert len(found) == 50


async def test_old_entries_are_removed(http: httpx.AsyncClient, application: FastAPI) -> None:
    await http.delete("/v1/keys/x")
    audit = application.state.services.audit
    await audit.flush()
    assert await audit.trim(3600.0) == 0
    assert await audit.trim(-1.0) == 1
    assert await entries(http) == []


async def test_a_store_out_of_reach_loses_no_entry_silently(
    app: App,
    http: httpx.AsyncClient,
    application: FastAPI,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    audit, records = application.state.services.audit, app.client.stack.records
    working = records.append
    calls = 0

    async def flaky(log: str, *data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls % 2 == 1:
            raise Unavailable("gone for a moment")
        return await working(log, *data)

    monkeypatch.setattr(type(records), "append", lambda _, log, *data: flaky(log, *data))
    for number in range(4):
        audit.note(Entry(float(number), "ops", "key", "POST", f"/{number}"))
    for _ in range(10):
        try:
            await audit.flush()
        except Unavailable:
            continue
    monkeypatch.undo()
    assert {each["path"] for each in await entries(http)} == {f"/{number}" for number in range(4)}
    monkeypatch.setattr(audits, "WAITING", 0)
    with caplog.at_level(logging.WARNING, "dalsegno.audit"):
        audit.note(Entry(1.0, "ops", "key", "POST", "/overflow"))
    assert "/overflow" in caplog.text


async def test_nothing_is_lost_with_a_reader_that_gives_up(
    app: App, http: httpx.AsyncClient, application: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads the log has it written first. The store may refuse that when nobody waits for it any more."""
    services, records = application.state.services, app.client.stack.records
    asked, may_fail = asyncio.Event(), asyncio.Event()

    async def hanging(*_: object) -> int:
        asked.set()
        await may_fail.wait()
        raise Unavailable("gone")

    monkeypatch.setattr(type(records), "append", hanging)
    services.audit.note(Entry(1.0, "ops", "key", "POST", "/noted"))
    reader = asyncio.create_task(http.get("/v1/audit"))
    await asked.wait()
    reader.cancel()
    await asyncio.wait({reader})
    may_fail.set()
    await asyncio.sleep(0.05)
    monkeypatch.undo()

    assert [each["path"] for each in await entries(http)] == ["/noted"]
