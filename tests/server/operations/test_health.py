"""Health over HTTP, and the codes of errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dalsegno import App
from dalsegno.error_causes import CAUSES
from dalsegno.errors import Unavailable
from dalsegno.server.schemas.operations import Part


def part(health: dict[str, Any], name: str) -> Part:
    return next(Part(**each) for each in health["parts"] if each["name"] == name)


async def timers_have_looked(http: httpx.AsyncClient) -> None:
    """Until their first look they are not a part of the server."""
    async with asyncio.timeout(30):
        while all(each["name"] != "timers" for each in (await http.get("/v1/health")).json()["parts"]):  # noqa: ASYNC110 - it only answers
            await asyncio.sleep(0.01)


async def test_a_server_that_is_well_says_so(http: httpx.AsyncClient, app: App) -> None:
    await timers_have_looked(http)
    health = (await http.get("/v1/health")).json()
    assert (health["status"], health["dead_workers"]) == ("ok", [])
    expected = {"store", "timers", "worker", "outbox", "workers"}
    assert expected <= {each["name"] for each in health["parts"]}
    assert ("disk" in {each["name"] for each in health["parts"]}) == app.url.startswith("sqlite")
    assert (await http.get("/v1/health/live")).json()["status"] == "ok"
    assert (await http.get("/v1/health/ready")).json()["status"] == "ok"


def answer_with(answer: Callable[..., Awaitable[None]], app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever the store is asked how it is."""
    stack = app.client.stack
    monkeypatch.setattr(stack.archive, "states", answer)
    if hasattr(stack.clock, "_fetch_or_hang_up"):
        store: Any = stack.clock
        monkeypatch.setattr(store, "_fetch_or_hang_up", answer)


async def test_a_store_out_of_reach_is_down_and_not_ready(
    http: httpx.AsyncClient, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise Unavailable("the disk is gone")

    answer_with(broken, app, monkeypatch)
    health = (await http.get("/v1/health")).json()
    assert (health["status"], part(health, "store").detail) == ("down", "the disk is gone")
    answer = await http.get("/v1/health/ready")
    assert (answer.status_code, answer.json()["code"]) == (503, "DS-210")
    assert (await http.get("/v1/health/live")).status_code == 200


async def test_a_store_that_hangs_is_not_waited_for(
    http: httpx.AsyncClient, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(*_: object) -> None:
        await asyncio.Event().wait()

    answer_with(hangs, app, monkeypatch)
    monkeypatch.setattr("dalsegno.server.operations.store_probe.PATIENCE", 0.05)
    answer = await http.get("/v1/health/ready")
    assert (answer.status_code, "did not answer" in answer.json()["detail"]) == (503, True)


async def test_a_stopping_server_is_alive_but_not_ready(
    http: httpx.AsyncClient, application: FastAPI
) -> None:
    application.state.services.closing.set()
    assert (await http.get("/v1/health/ready")).status_code == 503
    assert (await http.get("/v1/health/live")).status_code == 200


@pytest.mark.usefixtures("leases_stay")
async def test_dead_workers_that_hold_work_are_named(http: httpx.AsyncClient, app: App) -> None:
    ledger = app.client.stack.ledger
    graph = {"name": "g", "nodes": [{"id": "it", "type": "task", "queue": "x", "parameters": {"task": "t"}}]}
    await http.post("/v1/executions", json={"definition": graph})
    await asyncio.to_thread(ledger.heartbeat, "gone", 60.0)
    assert len(await ledger.claim("gone", ["x"], 1)) == 1
    await asyncio.to_thread(ledger.heartbeat, "gone", -1.0)
    health = (await http.get("/v1/health")).json()
    assert (health["status"], health["dead_workers"]) == ("degraded", ["gone"])
    assert "gone" in part(health, "workers").detail


async def test_timers_that_come_late_are_told(
    http: httpx.AsyncClient, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    await timers_have_looked(http)
    monkeypatch.setattr(app.engine.timers, "lag", lambda: 60.0)
    health = (await http.get("/v1/health")).json()
    assert (part(health, "timers").status, part(health, "timers").seconds) == ("degraded", 60.0)


async def test_every_code_has_its_cause_and_cure(http: httpx.AsyncClient) -> None:
    found = {each["code"]: each for each in (await http.get("/v1/errors")).json()["errors"]}
    assert CAUSES.keys() <= found.keys()
    assert (await http.get("/v1/errors/DS-350")).json()["name"] == "LeaseLost"
    assert (await http.get("/v1/errors/WORKER_LOST")).json()["cause"]
    problem = (await http.get("/v1/executions/nothing")).json()
    assert (await http.get(problem["type"])).json()["code"] == problem["code"]
    assert (await http.get("/v1/errors/DS-000x")).status_code == 404
