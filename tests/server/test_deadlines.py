"""Calls when the store falls silent: those that change something are told in time that nobody knows, and not undone;
those that read are given up."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, ClassVar

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Scope

from dalsegno.app import App
from dalsegno.engine.committer import Committer
from dalsegno.model.effect import CreateExecution
from dalsegno.model.transition import Outcome, Transition
from dalsegno.server import ServerSettings, bulk, create_application, deadlines, errands
from dalsegno.server.keys import KeyBook
from dalsegno.server.sessions import COOKIE
from tests.server.silence import Witness
from tests.servers.postgres import PostgresServer

DEADLINE = 0.5
IN_TIME = 3.0
"""Seconds: the machine may be busy."""
SCRIPT = "workflow waits(inputs) { return await Signal.when('go') }"
SETTINGS = ServerSettings(keys_seconds=600.0)
"""Callers are let in by the keys that are known: as those who come just before a silence."""


@pytest.fixture
def store_url(private_postgres: PostgresServer) -> str:
    return private_postgres.create_database("deadlines")


@pytest.fixture
def application(app: App) -> FastAPI:
    return create_application(app, SETTINGS)


async def started(http: httpx.AsyncClient, **more: Any) -> str:
    reply = await http.post("/v1/executions", json={"definition": SCRIPT, **more})
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


async def executions(http: httpx.AsyncClient) -> list[str]:
    return [each["id"] for each in (await http.get("/v1/executions?limit=200")).json()["items"]]


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await is_so():  # noqa: ASYNC110 - the store only answers
            await asyncio.sleep(0.05)


@asynccontextmanager
async def in_a_hurry(http: httpx.AsyncClient) -> AsyncIterator[None]:
    """Not from the beginning: what a test prepares may take its time on a busy machine."""
    office = http._transport.app.state.office  # type: ignore[attr-defined]
    office.settings, usual = (
        replace(office.settings, change_seconds=DEADLINE, read_seconds=DEADLINE),
        office.settings,
    )
    try:
        yield
    finally:
        office.settings = usual


def unknown(reply: httpx.Response) -> str:
    """What is advised to somebody who is told that nobody knows."""
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1"), reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json()["code"] == "DS-210"
    fact, _, advice = reply.json()["detail"].partition("or not. ")
    assert f"did not confirm this within {DEADLINE:g} s" in fact
    return str(advice)


# -- with a store that stands still ---------------------------------------------------------------------------


async def test_a_start_with_a_key_is_told_to_be_sent_again_and_is_one(
    http: httpx.AsyncClient, witness: Witness
) -> None:
    before = await started(http)
    again = {"json": {"workflow": "waits"}, "headers": {"Idempotency-Key": "k"}}
    async with in_a_hurry(http), witness.silence():
        reply = await witness.ask("POST", "/v1/executions", IN_TIME, **again)
    assert "Send it again with the same Idempotency-Key" in unknown(reply)
    after = await witness.ask("POST", "/v1/executions", 30.0, **again)
    assert after.status_code in (200, 201)
    assert set(await executions(http)) == {before, after.json()["id"]}


async def test_starts_whose_callers_were_told_so_happen_all_the_same(
    http: httpx.AsyncClient, witness: Witness
) -> None:
    """More than there are connections: most of them wait for one."""
    await started(http)
    async with in_a_hurry(http), witness.silence():
        asked = [
            witness.ask("POST", "/v1/executions", IN_TIME, json={"workflow": "waits"}) for _ in range(40)
        ]
        for reply in await asyncio.gather(*asked):
            assert "before you send it again" in unknown(reply)

    async def all_there() -> bool:
        return len(await executions(http)) == 41

    await until(all_there)


@pytest.mark.parametrize(
    ("method", "path", "body", "advice"),
    [
        ("POST", "/v1/executions/{id}/signals", {"name": "x"}, "names a key in its body"),
        ("POST", "/v1/executions/{id}/cancel", None, "Look whether it was done"),
        ("PUT", "/v1/limits/x", {"concurrency": 1}, "Send it again: what was done already"),
        ("DELETE", "/v1/executions/{id}", None, "Send it again: what was done already"),
    ],
)
async def test_other_calls_are_told_so_too(
    http: httpx.AsyncClient, witness: Witness, method: str, path: str, body: Any, advice: str
) -> None:
    path = path.format(id=await started(http))
    async with in_a_hurry(http), witness.silence():
        reply = await witness.ask(method, path, IN_TIME, **({"json": body} if body is not None else {}))
    assert advice in unknown(reply)


@pytest.mark.parametrize("path", ["", "/{id}", "/{id}/events", "/{id}/why", "/{id}/wait", "/{id}/stream"])
async def test_calls_that_read_are_given_up(http: httpx.AsyncClient, witness: Witness, path: str) -> None:
    path = "/v1/executions" + path.format(id=await started(http))
    async with in_a_hurry(http), witness.silence():
        reply = await witness.ask("GET", path, IN_TIME)
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1"), reply.text
    assert reply.json()["code"] == "DS-210"
    assert reply.json()["detail"] == f"the store did not answer within {DEADLINE:g} s; nothing was done"
    assert len(await executions(http)) == 1


async def test_who_cannot_be_known_in_time_is_told_that_nothing_was_done(
    http: httpx.AsyncClient, application: FastAPI, app: App, witness: Witness
) -> None:
    """By a session, of which the store alone knows; and at a webhook, which it alone knows."""
    office, stack = application.state.office, app.client.stack
    await KeyBook(stack.records, stack.clock).add("somebody", ["admin"])
    office.doorman.look_again()
    await office.doorman.keys()
    office.doorman.patience = DEADLINE
    session = {"Cookie": f"{COOKIE}={'0' * 64}"}
    async with in_a_hurry(http), witness.silence():
        for method, path in (("GET", "/v1/executions"), ("GET", "/v1/health"), ("POST", "/v1/hooks/some")):
            reply = await witness.ask(method, path, IN_TIME, headers=session, content=b"{}")
            assert (reply.status_code, reply.json()["code"]) == (503, "DS-210"), path
            assert reply.json()["detail"].endswith("nothing was done")


# -- whatever hangs -------------------------------------------------------------------------------------------


class Hanging:
    """Commits of starts that do not come back until they may, and break if they are told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.has_begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.made: list[str] = []
        self.error = error
        commit = Committer.commit

        async def hanging(committer: Committer, transition: Transition, **options: Any) -> Outcome:
            if not any(isinstance(effect, CreateExecution) for effect in transition.effects):
                return await commit(committer, transition, **options)
            self.has_begun.set()
            await self.may_end.wait()
            if self.error is not None:
                raise self.error
            outcome = await commit(committer, transition, **options)
            self.made.append(transition.execution)
            return outcome

        monkeypatch.setattr(Committer, "commit", hanging)


@asynccontextmanager
async def serving(app: App | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """A server that has started an execution before."""
    application = create_application(app or App("memory:"), SETTINGS)
    async with application.router.lifespan_context(application):
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as client:
            await started(client)
            yield client


async def told_unknown(http: httpx.AsyncClient) -> httpx.Response:
    """To somebody who starts one more."""
    async with in_a_hurry(http):
        reply = await http.post("/v1/executions", json={"workflow": "waits"})
    unknown(reply)
    return reply


async def test_the_execution_that_may_have_been_made_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dalsegno.server")
    async with serving() as http:
        hanging = Hanging(monkeypatch)
        reply = await told_unknown(http)
        named = reply.json()["execution"]
        assert f"GET /v1/executions/{named}" in unknown(reply)
        assert (await http.get(f"/v1/executions/{named}")).status_code == 404
        hanging.may_end.set()

        async def is_there() -> bool:
            return (await http.get(f"/v1/executions/{named}")).status_code == 200

        await until(is_there)
        assert hanging.made == [named]
    assert "POST /v1/executions, whose caller was told that its outcome is unknown: 201" in caplog.text


async def test_so_is_one_that_is_made_again_and_one_of_a_webhook(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = {"workflow": "waits", "path": "wait", "signature": {"style": "none"}}
    async with serving() as http:
        (execution,) = await executions(http)
        assert (await http.post(f"/v1/executions/{execution}/cancel")).is_success
        assert (await http.put("/v1/webhooks/wait", json=hook)).is_success
        hanging = Hanging(monkeypatch)
        async with in_a_hurry(http):
            asked = [
                await http.post(path) for path in (f"/v1/executions/{execution}/retry", "/v1/hooks/wait")
            ]
        named = [reply.json()["execution"] for reply in asked if unknown(reply)]
        hanging.may_end.set()

        async def are_there() -> bool:
            return sorted(await executions(http)) == sorted([execution, *named])

        await until(are_there)


async def test_of_several_that_may_have_been_made_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = {"states": ["CANCELLED"]}
    async with serving() as http:
        await started(http)
        for execution in await executions(http):
            assert (await http.post(f"/v1/executions/{execution}/cancel")).is_success
        hanging = Hanging(monkeypatch)
        async with in_a_hurry(http):
            reply = await http.post("/v1/executions/bulk", json={"action": "retry", "filter": cancelled})
        unknown(reply)
        assert "execution" not in reply.json()
        hanging.may_end.set()
    assert len(set(hanging.made)) == 2


async def test_what_others_make_meanwhile_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps inherit the context of the call that set them going, also those that start something themselves."""
    app = App("memory:")

    @app.task
    async def starts_more(_: None) -> None:
        for _ in range(3):
            await app.astart("waits")

    async with serving(app) as http:
        script = "workflow maker(inputs) { return await Task.run('starts_more', null) }"
        assert (await http.post("/v1/definitions", json={"source": script, "kind": "script"})).is_success
        monkeypatch.setattr(deadlines, "Call", KeptCall)
        execution = (await http.post("/v1/executions", json={"workflow": "maker"})).json()["id"]
        assert (await http.get(f"/v1/executions/{execution}/wait?seconds=20")).json()["state"] == "COMPLETED"
        assert len(await executions(http)) == 5
    assert [call.made for call in KeptCall.all if call.made] == [[execution]]


class KeptCall(deadlines.Call):
    all: ClassVar[list[deadlines.Call]] = []

    def __init__(self, scope: Scope, settings: ServerSettings) -> None:
        super().__init__(scope, settings)
        self.all.append(self)


async def test_beyond_many_that_wait_no_more_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "MOST_LEFT", 2)
    async with serving() as http:
        hanging = Hanging(monkeypatch)
        await told_unknown(http)
        await told_unknown(http)
        refused = await http.post("/v1/executions", json={"workflow": "waits"})
        assert (refused.status_code, refused.json()["code"]) == (503, "DS-210")
        assert refused.json()["detail"].endswith("nothing was done")
        assert (await http.get("/v1/health/live")).status_code == 200
        hanging.may_end.set()

        async def are_there() -> bool:
            return len(await executions(http)) == 3

        await until(are_there)
        assert (await http.post("/v1/executions", json={"workflow": "waits"})).status_code == 201


async def test_path_with_a_slash_in_a_name_is_told_as_it_came(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While a route runs it stands in the path as a character that cannot be written down."""
    hangs = asyncio.Event()

    async def versions(*_: object) -> object:
        await hangs.wait()
        return []

    async with serving() as http:
        archive = http._transport.app.state.office.client.stack.archive  # type: ignore[attr-defined]
        monkeypatch.setattr(type(archive), "versions", versions)
        async with in_a_hurry(http):
            reply = await http.get("/v1/definitions/a%2Fb/versions")
        assert reply.status_code == 503, reply.text
    assert "GET /v1/definitions/a/b/versions: the store did not answer" in caplog.text


async def test_what_breaks_when_nobody_waits_for_it_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as http:
        hanging = Hanging(monkeypatch, RuntimeError("a bug"))
        await told_unknown(http)
        hanging.may_end.set()
    assert "POST /v1/executions broke after its caller had gone" in caplog.text
    assert "a bug" in caplog.text


async def test_what_hangs_does_not_keep_a_server_from_stopping(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(errands, "PARTING", 0.05)
    async with asyncio.timeout(30), serving() as http:
        Hanging(monkeypatch)
        await told_unknown(http)
    assert "POST /v1/executions was given up: the server stops" in caplog.text


async def test_a_caller_that_goes_away_does_not_take_its_call_along(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as http:
        hanging = Hanging(monkeypatch)
        calling = asyncio.create_task(http.post("/v1/executions", json={"workflow": "waits"}))
        await hanging.has_begun.wait()
        calling.cancel()
        await asyncio.wait({calling})
        hanging.may_end.set()
    assert len(hanging.made) == 1


# -- what may take longer -------------------------------------------------------------------------------------


async def test_a_worker_may_wait_for_tasks_for_as_long_as_it_says() -> None:
    async with serving() as http, in_a_hurry(http):
        began = time.monotonic()
        reply = await http.post(
            "/v1/tasks/claim", json={"worker": "w", "queues": ["x"], "wait": 3 * DEADLINE}, timeout=30
        )
        assert (reply.status_code, reply.json()) == (200, {"tasks": []})
        assert time.monotonic() - began >= 3 * DEADLINE


async def test_an_execution_may_be_waited_for_and_watched() -> None:
    async with serving() as http:
        (execution,) = await executions(http)
        async with in_a_hurry(http):
            waited = await http.get(f"/v1/executions/{execution}/wait?seconds={3 * DEADLINE}")
            assert (waited.status_code, waited.json()["state"]) == (200, "RUNNING")
            watching = asyncio.create_task(http.get(f"/v1/executions/{execution}/stream"))
            await asyncio.sleep(3 * DEADLINE)
            assert not watching.done()
        assert (await http.post(f"/v1/executions/{execution}/signals", json={"name": "go"})).is_success
        assert "event: end" in (await watching).text


async def test_a_webhook_may_wait_for_its_workflow() -> None:
    script = f"workflow slow(inputs) {{ await Timer.delay('{3000 * DEADLINE:.0f}ms')\n return 7 }}"
    hook = {"workflow": "slow", "path": "slow", "signature": {"style": "none"}, "sync_seconds": 20}
    async with serving() as http:
        assert (await http.post("/v1/definitions", json={"source": script, "kind": "script"})).is_success
        assert (await http.put("/v1/webhooks/slow", json=hook)).is_success
        async with in_a_hurry(http):
            reply = await http.post("/v1/hooks/slow", json={}, timeout=30)
        assert (reply.status_code, reply.json()) == (200, 7), reply.text


async def test_many_at_once_have_their_time_for_every_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    act = bulk._act

    async def slowly(*args: Any) -> list[str | None]:
        await asyncio.sleep(0.6 * DEADLINE)
        return await act(*args)

    monkeypatch.setattr(bulk, "_act", slowly)
    monkeypatch.setattr(bulk, "CHUNK", 1)
    async with serving() as http:
        for _ in range(2):
            await started(http)
        async with in_a_hurry(http):
            reply = await http.post("/v1/executions/bulk", json={"action": "pause", "all": True}, timeout=30)
        assert (reply.status_code, reply.json()["changed"]) == (200, 3), reply.text
