"""Quotas of keys: off by default; starts and bytes per minute, open streams, stored executions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dalsegno import App
from dalsegno.admin.keys import Quotas
from dalsegno.engine.starting.start import STARTER_TAG
from dalsegno.server import ServerSettings
from dalsegno.server.application import create_application
from dalsegno.server.auth import quotas as usage
from dalsegno.server.auth.authentication import Caller
from dalsegno.server.auth.quotas import KeyUsage, TokenBucket
from tests.server.auth.test_keys import bearer, book_of, make_key
from tests.server.conftest import LASTING, LiveServer
from tests.server.test_definitions import GRAPH
from tests.server.test_executions import ended
from tests.server.test_waiting import WAITS
from tests.waiting import come_about, until

IN_MEMORY = pytest.mark.parametrize("store_url", ["memory"], indirect=True)
START = {"definition": GRAPH, "input": {"n": 1}}


@pytest.fixture
def application(app: App) -> FastAPI:
    return create_application(app, ServerSettings(keys_seconds=0.0))


async def key_with(app: App, **quotas: int) -> dict[str, str]:
    _, text = await book_of(app).add("tenant", ["run"], quotas=Quotas(**quotas))
    return bearer(text)


async def start(http: httpx.AsyncClient, key: dict[str, str], **more: Any) -> httpx.Response:
    return await http.post("/v1/executions", json={**START, **more}, headers=key)


async def finished(http: httpx.AsyncClient, execution: str, key: dict[str, str]) -> None:
    answer = await http.get(f"/v1/executions/{execution}/wait", headers=key)
    assert answer.json()["ended_at"] is not None


def refused(answer: httpx.Response, status: int, code: str, *said: str) -> None:
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    for each in said:
        assert each in answer.json()["detail"]


# -- rates ----------------------------------------------------------------------------------------------------


@IN_MEMORY
async def test_starts_beyond_the_quota_are_refused_with_the_time_to_wait(
    app: App, http: httpx.AsyncClient
) -> None:
    key = await key_with(app, starts_per_minute=4)
    made = (await start(http, key)).json()["id"]
    await finished(http, made, key)
    submitted = await http.post("/v1/workflows", json={**GRAPH, "input": {"n": 1}}, headers=key)
    assert submitted.status_code == 201, submitted.text
    again = await http.post(f"/v1/executions/{made}/rerun", json={"nodes": ["twice"]}, headers=key)
    assert again.status_code == 201, again.text
    assert (await start(http, key)).status_code == 201
    again = await start(http, key)
    refused(again, 429, "DS-332", "'tenant'", "4 starts per minute")
    assert 1 <= int(again.headers["Retry-After"]) <= 15
    other = bearer(await make_key(app, "run", name="other"))
    assert (await start(http, other)).status_code == 201
    told = (await http.get("/v1/session", headers=key)).json()["use"]
    assert told["starts_per_minute"] == {"limit": 4, "used": 4}


@LASTING
def test_a_key_beyond_its_quota_is_refused_over_a_socket(app: App) -> None:
    with LiveServer(app, ServerSettings(keys_seconds=0.0)) as live, httpx.Client(base_url=live.url) as http:
        made = http.post("/v1/keys", json={"name": "ops", "scopes": ["admin"]}).json()["key"]
        http.headers.update(bearer(made))
        wish = {"name": "tenant", "scopes": ["run"], "quotas": {"starts_per_minute": 2}}
        tenant = bearer(http.post("/v1/keys", json=wish).json()["key"])
        answers = [http.post("/v1/executions", json=START, headers=tenant) for _ in range(12)]
        assert [each.status_code for each in answers] == [201, 201, *[429] * 10]
        assert 25 <= int(answers[-1].headers["Retry-After"]) <= 30
        assert http.post("/v1/executions", json=START).status_code == 201

        def written() -> list[dict[str, Any]] | None:
            noted: list[dict[str, Any]] = http.get("/v1/audit").json()["items"]
            is_last = any(each["action"] == "executions.start" and each["who"] == "ops" for each in noted)
            return noted if is_last else None

        noted = until(written, "the last start is in the audit log")
        assert sum(each["status"] == 429 for each in noted) == 1, "a flood of refusals does not fill the log"


def test_a_bucket_fills_evenly_and_says_exactly_how_long_to_wait() -> None:
    bucket = TokenBucket(6, now=0.0)
    bucket.level -= 6
    assert bucket.wait_for(1) == pytest.approx(10.0)
    bucket.fill(6, 10.0)
    assert bucket.level == pytest.approx(1.0)
    bucket.fill(6, 1000.0)
    assert bucket.level == 6
    bucket.level -= 6
    bucket.fill(12, 1000.0)
    assert bucket.level == 6  # what was used stays used


@IN_MEMORY
async def test_bodies_of_requests_and_replies_count_for_the_bytes(app: App, http: httpx.AsyncClient) -> None:
    key = await key_with(app, bytes_per_minute=20_000)
    assert (await start(http, key, input={"n": 1, "text": "x" * 30_000})).status_code == 201
    late = await start(http, key)
    refused(late, 429, "DS-332", "20,000 bytes per minute")
    assert 30 <= int(late.headers["Retry-After"]) <= 60
    refused(await http.get("/v1/executions", headers=key), 429, "DS-332")
    told = await http.get("/v1/session", headers=key)
    assert told.json()["use"]["bytes_per_minute"]["used"] > 30_000


@IN_MEMORY
def test_a_body_of_unknown_length_is_counted_while_it_comes(app: App) -> None:
    with LiveServer(app, ServerSettings(keys_seconds=0.0)) as live:
        made = httpx.post(f"{live.url}/v1/keys", json={"name": "ops", "scopes": ["admin"]}).json()["key"]
        wish = {"name": "tenant", "scopes": ["run"], "quotas": {"bytes_per_minute": 100_000}}
        key = httpx.post(f"{live.url}/v1/keys", json=wish, headers=bearer(made)).json()["key"]
        headers = {**bearer(key), "Content-Type": "application/json"}

        def endless() -> Iterator[bytes]:
            for _ in range(500):
                yield b" " * 20_000

        answer = httpx.post(f"{live.url}/v1/executions", content=endless(), headers=headers)
        refused(answer, 429, "DS-332", "bytes per minute")


@IN_MEMORY
async def test_bulk_retries_count_each_start(app: App, http: httpx.AsyncClient) -> None:
    failing = {
        "name": "failing",
        "nodes": [{"id": "f", "type": "task", "parameters": {"task": "fail"}}],
        "edges": [],
    }
    for _ in range(5):
        made = await http.post("/v1/executions", json={"definition": failing})
        assert (await ended(http, made.json()["id"]))["state"] == "FAILED"
    key = await key_with(app, starts_per_minute=3)
    order = {"action": "retry", "filter": {"workflow": "failing"}}
    first = await http.post("/v1/executions/bulk", json=order, headers=key)
    assert first.status_code == 200, first.text
    assert (first.json()["changed"], first.json()["next"] is not None) == (3, True)
    refused(await http.post("/v1/executions/bulk", json=order, headers=key), 429, "DS-332")


@IN_MEMORY
async def test_each_start_of_a_batch_counts(app: App, http: httpx.AsyncClient) -> None:
    assert (await http.post("/v1/definitions", json=GRAPH)).status_code == 201
    key = await key_with(app, starts_per_minute=3)
    body = {"starts": [{"workflow": GRAPH["name"], "input": {"n": n}} for n in range(5)]}
    answer = await http.post("/v1/executions/batch", json=body, headers=key)
    results = answer.json()["results"]
    assert [result["id"] is not None for result in results] == [True, True, True, False, False]
    assert {result["problem"]["code"] for result in results[3:]} == {"DS-332"}
    assert all(10 <= result["retry_after"] <= 20 for result in results[3:])


# -- open streams ---------------------------------------------------------------------------------------------


@IN_MEMORY
async def test_streams_and_waiting_calls_count_together(app: App, http: httpx.AsyncClient) -> None:
    key = await key_with(app, open_streams=1)
    made = (await http.post("/v1/executions", json={"definition": WAITS}, headers=key)).json()["id"]
    path = f"/v1/executions/{made}"
    waits = asyncio.create_task(http.get(f"{path}/wait", params={"seconds": 30}, headers=key))
    services = http._transport.app.state.services  # type: ignore[attr-defined]
    await come_about(lambda: services.usage.open_streams, "the call waits")
    refused(
        await http.get(f"{path}/wait", headers=key), 429, "DS-332", "has 1 event streams", "its quota is 1"
    )
    refused(await http.get(f"{path}/stream", headers=key), 429, "DS-332")
    refused(await http.get("/v1/stream", headers=key), 429, "DS-332")
    endings = {"executions": [made]}
    refused(await http.post("/v1/executions/endings", json=endings, headers=key), 429, "DS-332")
    await http.post(f"{path}/signals", json={"name": "go", "payload": {"by": "Ann"}}, headers=key)
    assert (await waits).json()["state"] == "COMPLETED"
    assert not services.usage.open_streams
    assert (await http.get(f"{path}/stream", headers=key)).status_code == 200
    assert (await http.post("/v1/executions/endings", json=endings, headers=key)).status_code == 200
    assert not services.usage.open_streams


def test_one_key_cannot_take_all_streams_of_a_server() -> None:
    counted = KeyUsage(lambda key: Quotas(), 8)
    one, two = Caller("one", frozenset(), "key", "1"), Caller("two", frozenset(), "key", "2")
    for _ in range(6):
        counted.open_stream(one)
    with pytest.raises(usage.Unavailable, match="with this key"):
        counted.open_stream(one)
    over = counted.open_stream(two)
    counted.open_stream(two)
    with pytest.raises(usage.Unavailable, match="8 event streams"):
        counted.open_stream(two)
    over()
    counted.open_stream(two)


@IN_MEMORY
def test_waiting_calls_have_a_limit_without_quotas(app: App) -> None:
    with LiveServer(app, ServerSettings(streams=0)) as live:
        answer = httpx.post(f"{live.url}/v1/tasks/claim", json={"worker": "w", "queues": ["x"], "wait": 1})
        refused(answer, 503, "DS-210", "as many as this server allows")
        assert answer.headers["Retry-After"] == "1"


# -- stored executions ----------------------------------------------------------------------------------------


@LASTING
async def test_stored_executions_are_limited_until_some_are_deleted(
    app: App, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "COUNT_EVERY", 0.0)
    monkeypatch.setattr(usage, "COUNT_SHARE", 0)
    admin = bearer(await make_key(app, "admin", name="ops"))
    key = await key_with(app, stored_executions=2)
    made = [(await start(http, key, idempotency_key=f"k{n}")).json()["id"] for n in range(2)]
    for each in made:
        await finished(http, each, key)
    full = await start(http, key)
    refused(full, 403, "DS-333", "2 executions", "'tenant'", "its quota is 2")
    refused(await http.post(f"/v1/executions/{made[0]}/retry", headers=key), 403, "DS-333")
    repeated = await start(http, key, idempotency_key="k1")
    assert (repeated.status_code, repeated.json()["id"]) == (200, made[1])
    assert (await start(http, admin)).status_code == 201
    (listed,) = [
        each
        for each in (await http.get("/v1/keys", headers=admin)).json()["items"]
        if each["name"] == "tenant"
    ]
    assert listed["quotas"]["stored_executions"] == 2
    assert listed["use"]["stored_executions"] == {"limit": 2, "used": 2}
    assert (await http.delete(f"/v1/executions/{made[0]}", headers=admin)).status_code == 204
    assert (await start(http, key)).status_code == 201


@LASTING
async def test_stored_executions_are_counted_seldom(app: App, http: httpx.AsyncClient) -> None:
    """Between two counts what this server starts is added up."""
    key = await key_with(app, stored_executions=3)
    archive, counts = app.client.stack.archive, 0
    count = archive.count_tagged

    async def counted(name: str, value: str, most: int) -> int:
        nonlocal counts
        counts += 1
        return await count(name, value, most)

    archive.count_tagged = counted  # type: ignore[method-assign]
    assert [(await start(http, key)).status_code for _ in range(4)] == [201, 201, 201, 403]
    assert counts == 1


@IN_MEMORY
async def test_no_caller_says_for_whom_an_execution_counts(app: App, http: httpx.AsyncClient) -> None:
    key = await key_with(app, stored_executions=10)
    own = (await book_of(app).find("tenant")).id
    forged = await start(http, key, tags={STARTER_TAG: "somebody", "team": "a"})
    assert forged.json()["tags"] == {STARTER_TAG: own, "team": "a"}
    other = bearer(await make_key(app, "run", name="other"))
    assert (await start(http, other, tags={STARTER_TAG: own})).json()["tags"] == {}
    await finished(http, forged.json()["id"], key)
    again = await http.post(
        f"/v1/executions/{forged.json()['id']}/rerun", json={"nodes": ["twice"]}, headers=other
    )
    assert STARTER_TAG not in again.json().get("tags", {})


# -- setting them ---------------------------------------------------------------------------------------------


@IN_MEMORY
async def test_quotas_are_off_until_they_are_set_and_can_be_taken_back(
    app: App, http: httpx.AsyncClient
) -> None:
    admin = bearer(await make_key(app, "admin", name="ops"))
    key = bearer(await make_key(app, "run", name="tenant"))
    use = (await http.get("/v1/session", headers=key)).json()["use"]
    assert use["starts_per_minute"] == {"limit": None, "used": None}
    changed = await http.patch("/v1/keys/tenant", json={"quotas": {"starts_per_minute": 1}}, headers=admin)
    assert changed.json()["quotas"]["starts_per_minute"] == 1
    assert [(await start(http, key)).status_code for _ in range(2)] == [201, 429]
    await http.patch("/v1/keys/tenant", json={"quotas": {"starts_per_minute": None}}, headers=admin)
    assert (await start(http, key)).status_code == 201
    wrong = await http.patch("/v1/keys/tenant", json={"quotas": {"starts_per_minute": -1}}, headers=admin)
    assert wrong.status_code == 422
    assert (
        await http.patch("/v1/keys/tenant", json={"quotas": {"open_streams": 1}}, headers=key)
    ).status_code == 403


@IN_MEMORY
async def test_a_server_has_defaults_for_keys_without_their_own(app: App) -> None:
    application = create_application(
        app, ServerSettings(keys_seconds=0.0, quotas=Quotas(starts_per_minute=1))
    )
    async with application.router.lifespan_context(application):
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as http:
            plain = bearer(await make_key(app, "run", name="plain"))
            _, free = await book_of(app).add("free", ["run"], quotas=Quotas(starts_per_minute=0))
            assert [(await start(http, plain)).status_code for _ in range(2)] == [201, 429]
            assert [(await start(http, bearer(free))).status_code for _ in range(2)] == [201, 201]
