"""Requests as they come: HEAD, scopes before bodies, characters that nobody can see, webhooks that read little."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dalsegno.app import App
from tests.server.auth.test_keys import bearer, make_key
from tests.server.test_definitions import GRAPH

JSON = {"Content-Type": "application/json"}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALSEGNO_SECRET_KEY", "a passphrase of the tests")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/health",
        "/v1/health/live",
        "/v1/executions",
        "/v1/openapi.json",
        "/docs",
        "/metrics",
        "/v1/errors",
    ],
)
async def test_head_is_get_without_its_body(http: httpx.AsyncClient, path: str) -> None:
    get, head = await http.get(path), await http.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
    assert head.headers["x-content-type-options"] == "nosniff"


async def test_head_of_nothing_and_of_what_only_takes_posts(http: httpx.AsyncClient) -> None:
    assert (await http.head("/v1/nothing")).status_code == 404
    assert (await http.head("/v1/tasks/x/complete")).status_code == 405


async def test_head_of_a_stream_ends(http: httpx.AsyncClient) -> None:
    waits = {
        "name": "w",
        "nodes": [{"id": "w", "type": "wait", "parameters": {"resume": "signal", "signal": "go"}}],
    }
    execution = (await http.post("/v1/executions", json={"definition": waits})).json()["id"]
    async with asyncio.timeout(20):
        answer = await http.head(f"/v1/executions/{execution}/stream")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")


async def test_a_scope_that_is_too_small_is_told_before_the_body_is_read(
    app: App, application: FastAPI, http: httpx.AsyncClient
) -> None:
    reader = await make_key(app, "read")
    application.state.services.authenticator.look_again()
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        read += 1
        yield b"{ this is no JSON"

    headers = {**bearer(reader), **JSON}
    refused = await http.post("/v1/executions", content=body(), headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (403, "DS-320")
    assert "scope 'run'" in refused.json()["detail"]
    assert read == 0


@pytest.mark.parametrize(
    ("method", "path", "body", "place"),
    [
        ("POST", "/v1/executions", {"workflow": "sum", "tags": {"env": "a\x00b"}}, "/body/tags/env"),
        ("POST", "/v1/executions", {"workflow": "sum", "tags": {"e\nv": "a"}}, "/body/tags/"),
        ("PUT", "/v1/alerts/ops", {"url": "https://example.com/\x00"}, "/body/url"),
        ("PUT", "/v1/limits/a%00b", {"concurrency": 1}, "/path/key"),
        ("PUT", "/v1/limits/a%01b", {"concurrency": 1}, "/path/key"),
    ],
)
async def test_characters_that_nobody_sees_are_refused_with_their_place(
    http: httpx.AsyncClient, method: str, path: str, body: dict[str, Any], place: str
) -> None:
    answer = await http.request(method, path, json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"].startswith(place)


async def test_the_path_of_a_webhook_has_no_such_characters(http: httpx.AsyncClient) -> None:
    answer = await http.put(
        "/v1/webhooks/w", json={"path": "a\x00b", "workflow": "x", "secret": "long enough"}
    )
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("/body/path: ")


@pytest.mark.parametrize("name", [".", ".."])
async def test_no_workflow_is_named_after_a_place(http: httpx.AsyncClient, name: str) -> None:
    graph = await http.post("/v1/definitions", json={"document": {**GRAPH, "name": name}})
    assert graph.status_code == 422, graph.text
    assert graph.json()["errors"][0]["pointer"] == "/name"
    script = await http.post("/v1/definitions", json={"source": "return 1", "kind": "script", "name": name})
    assert script.status_code == 422
    assert "means another place" in script.json()["detail"]


async def test_a_webhook_for_nothing_is_warned_of(http: httpx.AsyncClient) -> None:
    setting = {"path": "a", "workflow": "sum", "secret": "long enough"}
    early = await http.put("/v1/webhooks/w", json=setting)
    assert early.status_code == 201
    assert early.json()["warning"].startswith("there is no workflow 'sum' in this store")
    await http.post("/v1/definitions", json=GRAPH)
    assert (await http.put("/v1/webhooks/w", json=setting)).json()["warning"] is None


async def test_of_a_delivery_no_more_is_read_than_its_webhook_takes(http: httpx.AsyncClient) -> None:
    setting = {"path": "small", "workflow": "sum", "signature": {"style": "none"}, "body_bytes": 1000}
    assert (await http.put("/v1/webhooks/w", json=setting)).status_code == 201
    read = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(100):
            read += 600
            yield b"x" * 600

    refused = await http.post("/v1/hooks/small", content=body(), headers={"Content-Type": "text/plain"})
    assert refused.status_code == 413, refused.text
    assert read <= 1800
