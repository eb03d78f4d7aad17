"""Failure alerts: by HTTP and by mail, once for each failure, grouped, again when the receiver was down."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest
from fastapi import FastAPI

from dalsegno.app import App
from dalsegno.server import alerts as alerting
from dalsegno.server.alerts import Alerting
from dalsegno.server.services import ServerServices
from tests.server.smtp import MailServer
from tests.server.test_executions import ended

FAILING = {"name": "broken", "nodes": [{"id": "f", "type": "task", "parameters": {"task": "fail"}}]}


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's own rounds do not come in between: each test makes its rounds itself."""
    monkeypatch.setattr(alerting, "LOOK_EVERY", 3600.0)
    monkeypatch.setenv("DALSEGNO_SECRET_KEY", "a passphrase of the tests")


@pytest.fixture
def services(application: FastAPI, http: httpx.AsyncClient) -> ServerServices:
    assert http is not None
    found: ServerServices = application.state.services
    return found


class Receiver:
    """Of alerts by HTTP; answers what it is told to."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.status = 200
        self.url = ""

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        self.got.append(json.loads(await reader.readexactly(size)))
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % self.status)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    server = await asyncio.start_server(made.talk, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hidden-part"
    try:
        yield made
    finally:
        server.close()


async def fail_once(http: httpx.AsyncClient) -> str:
    answer = await http.post("/v1/executions", json={"definition": FAILING})
    execution: str = answer.json()["id"]
    assert (await ended(http, execution))["state"] == "FAILED"
    return execution


async def test_a_failure_is_told_once_with_what_is_needed(
    http: httpx.AsyncClient, services: ServerServices
) -> None:
    before = await fail_once(http)
    async with receiver() as other:
        made = await http.put("/v1/alerts/ops", json={"url": other.url, "every": 0})
        assert (made.status_code, made.json()["target"]) == (201, "http://127.0.0.1/…")
        execution = await fail_once(http)
        for _ in range(3):
            await Alerting(services).round()
    (message,) = other.got
    (failure,) = message["failures"]
    assert before != failure["execution"] == execution
    assert (failure["workflow"], failure["node"], message["count"]) == ("broken", "f", 1)
    assert "no luck" in failure["message"]
    assert failure["link"].endswith(f"/v1/executions/{execution}")
    shown = (await http.get("/v1/alerts")).text
    assert "hidden-part" not in shown + repr(await services.client.stack.records.page("alert"))
    assert (await http.get("/v1/alerts/ops")).json()["told_at"] is not None


async def test_what_fails_within_the_pause_comes_in_one_message(
    http: httpx.AsyncClient, services: ServerServices
) -> None:
    async with receiver() as other:
        await http.put("/v1/alerts/ops", json={"url": other.url, "every": 3600, "workflow": "broken"})
        await fail_once(http)
        await Alerting(services).round()
        more = {await fail_once(http), await fail_once(http)}
        await Alerting(services).round()
        assert len(other.got) == 1
        assert (await http.get("/v1/alerts/ops")).json()["waiting"] == 2
        alert = await Alerting(services).alert_records.get("ops")
        await services.client.stack.records.put("alert", "ops", _every(alert, 0.0))
        await Alerting(services).round()
    assert {each["execution"] for each in other.got[1]["failures"]} == more
    assert other.got[1]["count"] == 2


def _every(alert: Any, seconds: float) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(alert, every=seconds))


async def test_a_receiver_that_was_down_gets_the_very_message_later(
    http: httpx.AsyncClient, services: ServerServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerting, "BACK_OFF", (0.0,))
    async with receiver() as other:
        await http.put("/v1/alerts/ops", json={"url": other.url, "every": 0})
        other.status = 503
        first = await fail_once(http)
        await Alerting(services).round()
        assert (await http.get("/v1/alerts/ops")).json()["error"] == "the receiver answered 503"
        second = await fail_once(http)
        other.status = 200
        await Alerting(services).round()
        await Alerting(services).round()
    assert [message["id"] for message in other.got][:2] == [other.got[0]["id"]] * 2
    told = [[each["execution"] for each in message["failures"]] for message in other.got]
    assert told == [[first], [first], [second]]


async def test_servers_at_the_same_time_tell_once(http: httpx.AsyncClient, services: ServerServices) -> None:
    async with receiver() as other:
        await http.put("/v1/alerts/ops", json={"url": other.url, "every": 0})
        await fail_once(http)
        await asyncio.gather(*(Alerting(services).round() for _ in range(5)))
        await Alerting(services).round()
    assert len(other.got) == 1


async def test_other_workflows_children_and_disabled_alerts_are_not_told(
    http: httpx.AsyncClient, services: ServerServices
) -> None:
    parent = {
        "name": "parent",
        "nodes": [{"id": "c", "type": "workflow", "parameters": {"name": "broken"}}],
    }
    await http.post("/v1/definitions", json=FAILING)
    async with receiver() as other:
        await http.put("/v1/alerts/all", json={"url": other.url, "every": 0})
        await http.put("/v1/alerts/else", json={"url": other.url, "every": 0, "workflow": "sum"})
        await http.put("/v1/alerts/off", json={"url": other.url, "every": 0, "enabled": False})
        execution = (await http.post("/v1/executions", json={"definition": parent})).json()["id"]
        assert (await ended(http, execution))["state"] == "FAILED"
        await Alerting(services).round()
    assert [(each["alert"], each["failures"][0]["execution"]) for each in other.got] == [("all", execution)]


async def test_mail(
    http: httpx.AsyncClient, services: ServerServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DALSEGNO_SMTP_URL", raising=False)
    await http.put("/v1/alerts/ops", json={"mail": ["ops@example.com", "ann@example.com"], "every": 0})
    untold = (await http.post("/v1/alerts/ops/test")).json()
    assert (untold["delivered"], "DALSEGNO_SMTP_URL is not set" in untold["error"]) == (False, True)
    async with MailServer() as post:
        monkeypatch.setenv("DALSEGNO_SMTP_URL", f"smtp://127.0.0.1:{post.port}")
        execution = await fail_once(http)
        await Alerting(services).round()
        (letter,) = post.letters
        assert (letter["Subject"], letter["To"]) == ("broken failed", "ops@example.com, ann@example.com")
        assert "no luck" in letter.get_content()
        assert f"/v1/executions/{execution}" in letter.get_content()
        assert (await http.post("/v1/alerts/ops/test")).json() == {"delivered": True, "error": None}
        monkeypatch.setenv("DALSEGNO_SMTP_URL", f"smtp://u:secret-word@127.0.0.1:{post.port}")
        refused = (await http.post("/v1/alerts/ops/test")).json()
        assert "offers no TLS" in refused["error"]
        assert "secret-word" not in refused["error"]


async def test_what_makes_no_sense_is_refused(http: httpx.AsyncClient, app: App) -> None:
    for setting in (
        {},
        {"url": "http://a/", "mail": ["a@b.c"]},
        {"url": "ftp://a/"},
        {"url": "http://[/"},
        {"url": "nonsense"},
        {"mail": ["nobody"]},
        {"mail": ["a@b.c\r\nBcc: x@y.z"]},
        {"url": "http://a/", "every": -1},
    ):
        answer = await http.put("/v1/alerts/ops", json=setting)
        assert answer.status_code == 422, (setting, answer.text)
    assert (await http.get("/v1/alerts")).json()["items"] == []
    assert (await http.delete("/v1/alerts/ops")).status_code == 404
    assert app is not None


async def test_an_alert_for_what_is_not_deployed_says_so(http: httpx.AsyncClient) -> None:
    setting = {"workflow": "nothing", "url": "http://127.0.0.1:9/hook"}
    told = (await http.put("/v1/alerts/odd", json=setting)).json()
    assert told["warning"].startswith("no workflow 'nothing' is deployed in this store")
    assert (await http.get("/v1/alerts/odd")).json()["warning"] == told["warning"]

    await http.post(
        "/v1/definitions",
        json={"name": "nothing", "nodes": [{"id": "a", "type": "log", "parameters": {"message": "x"}}]},
    )
    assert (await http.get("/v1/alerts/odd")).json()["warning"] is None
