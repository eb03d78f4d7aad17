"""``/v1/credentials``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dalsegno.app import App
from dalsegno.engine.secrets.keys import KEY_VARIABLE, new_key
from dalsegno.server.application import create_application

SETTING: dict[str, Any] = {
    "type": "bearer",
    "fields": {"token": "t0ken-of-the-crm"},
    "hosts": ["API.example.com"],
    "workflows": ["*"],
    "description": "the CRM",
}
SHOWN = {
    "name": "crm",
    "type": "bearer",
    "fields": ["token"],
    "hosts": ["api.example.com"],
    "workflows": ["*"],
    "sent_as": "",
    "description": "the CRM",
    "version": 1,
}


async def client(application: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with application.router.lifespan_context(application):
        transport = httpx.ASGITransport(application, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as speaking:
            yield speaking


@pytest.fixture(params=["memory", "sqlite"])
async def http(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    monkeypatch.setenv(KEY_VARIABLE, new_key())
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'server.db'}"
    async for speaking in client(create_application(App(url))):
        yield speaking


async def test_set_look_change_remove(http: httpx.AsyncClient) -> None:
    answer = await http.put("/v1/credentials/crm", json=SETTING)
    assert answer.status_code == 201
    assert answer.json() | SHOWN == answer.json()
    changed = await http.put(
        "/v1/credentials/crm", json={**SETTING, "fields": None, "workflows": ["billing-*"]}
    )
    assert (changed.status_code, changed.json()["version"]) == (200, 2)
    found = await http.get("/v1/credentials/crm")
    assert found.json() == changed.json()
    assert "t0ken" not in answer.text + changed.text + found.text
    assert (await http.delete("/v1/credentials/crm")).status_code == 204
    gone = await http.get("/v1/credentials/crm")
    assert (gone.status_code, gone.json()["code"]) == (404, "DS-340")
    assert (await http.delete("/v1/credentials/crm")).status_code == 404


async def test_the_list_has_pages(http: httpx.AsyncClient) -> None:
    for number in range(5):
        await http.put(f"/v1/credentials/c{number}", json=SETTING)
    first = (await http.get("/v1/credentials?limit=3")).json()
    second = (await http.get("/v1/credentials", params={"limit": 3, "cursor": first["next"]})).json()
    assert [each["name"] for each in first["items"] + second["items"]] == ["c0", "c1", "c2", "c3", "c4"]
    assert second["next"] is None


async def test_a_credential_without_workflows_is_refused(http: httpx.AsyncClient) -> None:
    setting = {name: value for name, value in SETTING.items() if name != "workflows"}
    answer = await http.put("/v1/credentials/crm", json=setting)
    assert answer.status_code == 422
    assert "'*' means every definition that anyone deploys, without an approval" in answer.json()["detail"]
    described = (await http.get("/v1/openapi.json")).json()["components"]["schemas"]["CredentialSetting"]
    assert described["required"] == ["type", "workflows"]


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("a b", {}, "cannot be a credential's name"),
        ("x" * 101, {}, "at most 100"),
        ("crm", {"fields": {"token": "sekret", "extra": "sekret2"}}, "and no other"),
        ("crm", {"fields": {"token": 5}}, "/body/fields/token"),
        ("crm", {"fields": None}, "give its 'fields'"),
        ("crm", {"hosts": ["http://x/path"]}, "'hosts/0'"),
        ("crm", {"type": "magic"}, "/body/type"),
        ("crm", {"workflows": []}, "needs 'workflows': the names of those that may use it"),
        ("crm", {"value": "sekret-elsewhere"}, "/body/value"),
    ],
)
async def test_refusals_name_the_place_and_no_value(
    http: httpx.AsyncClient, name: str, change: dict[str, Any], said: str
) -> None:
    answer = await http.put(f"/v1/credentials/{name}", json={**SETTING, **change})
    assert answer.status_code == 422
    assert said in answer.json()["detail"]
    assert "sekret" not in answer.text
    assert (await http.get("/v1/credentials")).json()["items"] == []


async def test_rotation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = new_key(), new_key()
    url = f"sqlite:///{tmp_path / 'server.db'}"
    monkeypatch.setenv(KEY_VARIABLE, old)
    async for http in client(create_application(App(url))):
        await http.put("/v1/credentials/crm", json=SETTING)
    monkeypatch.setenv(KEY_VARIABLE, f"{new},{old}")
    async for http in client(create_application(App(url))):
        before = (await http.get("/v1/credentials/crm")).json()["keys"]
        assert (await http.post("/v1/credentials/rotate")).json() == {
            "rotated": ["crm"],
            "current": 0,
            "unreadable": {},
        }
        assert (await http.get("/v1/credentials/crm")).json()["keys"] != before
    monkeypatch.setenv(KEY_VARIABLE, new_key())
    async for http in client(create_application(App(url))):
        assert list((await http.post("/v1/credentials/rotate")).json()["unreadable"]) == ["crm"]
        kept = await http.put("/v1/credentials/crm", json={**SETTING, "fields": None})
        assert (kept.status_code, kept.json()["code"]) == (409, "DS-343")


def _key_files(folder: Path) -> list[str]:
    return [each.name for each in folder.glob("*.key")]


async def test_a_server_makes_no_key_unless_it_may(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'server.db'}")
    async for http in client(create_application(app)):
        for answer in (
            await http.put("/v1/credentials/crm", json=SETTING),
            await http.post("/v1/credentials/rotate"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (409, "DS-342")
            assert "dalsegno credentials new-key" in answer.json()["detail"]
    assert not _key_files(tmp_path)
    app = App(app.url)
    app.makes_secret_key = True
    async for http in client(create_application(app)):
        assert (await http.put("/v1/credentials/crm", json=SETTING)).status_code == 201
    assert _key_files(tmp_path) == ["server.db.key"]


@pytest.mark.parametrize(
    ("scope", "method", "path", "status"),
    [
        ("read", "GET", "/v1/credentials", 200),
        ("run", "GET", "/v1/credentials/crm", 404),
        ("run", "PUT", "/v1/credentials/crm", 403),
        ("run", "DELETE", "/v1/credentials/crm", 403),
        ("run", "POST", "/v1/credentials/rotate", 403),
        ("worker", "GET", "/v1/credentials", 403),
        ("admin", "PUT", "/v1/credentials/crm", 201),
    ],
)
async def test_scopes(http: httpx.AsyncClient, scope: str, method: str, path: str, status: int) -> None:
    queues = {"queues": ["*"]} if scope == "worker" else {}
    made = await http.post("/v1/keys", json={"name": "ann", "scopes": [scope], **queues})
    assert made.status_code == 201, made.text
    headers = {"Authorization": f"Bearer {made.json()['key']}"}
    body = SETTING if method == "PUT" else None
    answer = await http.request(method, path, json=body, headers=headers)
    assert answer.status_code == status, answer.text
