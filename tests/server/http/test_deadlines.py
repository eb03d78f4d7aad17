"""Calls that hang, for whatever reason: their callers are told in time, and what they asked for goes on."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, ClassVar

import httpx
import pytest
from starlette.types import Scope

from dalsegno.app import App
from dalsegno.engine.committer import Committer
from dalsegno.model.effect import CreateExecution
from dalsegno.model.transition import Outcome, Transition
from dalsegno.server import ServerSettings, services
from dalsegno.server.http import deadlines
from tests.server.short_deadlines import executions, in_a_hurry, serving, started, unknown, until


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
    assert "POST /v1/executions, whose outcome was reported as unknown to its caller: 201" in caplog.text


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

    async def version_of(*_: object) -> object:
        await hangs.wait()
        return None

    async with serving() as http:
        archive = http._transport.app.state.services.client.stack.archive  # type: ignore[attr-defined]
        monkeypatch.setattr(type(archive), "version_of", version_of)
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
    assert "POST /v1/executions failed after its caller had disconnected" in caplog.text
    assert "a bug" in caplog.text


async def test_what_hangs_does_not_keep_a_server_from_stopping(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(services, "END_SECONDS", 0.05)
    async with asyncio.timeout(30), serving() as http:
        Hanging(monkeypatch)
        await told_unknown(http)
    assert "POST /v1/executions was abandoned because the server is stopping" in caplog.text


async def test_a_caller_that_goes_away_does_not_take_its_call_along(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as http:
        hanging = Hanging(monkeypatch)
        calling = asyncio.create_task(http.post("/v1/executions", json={"workflow": "waits"}))
        await hanging.has_begun.wait()
        calling.cancel()
        await asyncio.wait({calling})
        hanging.may_end.set()
    assert len(hanging.made) == 1
