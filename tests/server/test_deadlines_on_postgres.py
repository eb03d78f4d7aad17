"""Calls when the store falls silent: those that change something are told in time that nobody knows, and not undone;
those that read are given up."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dalsegno.admin.keys import KeyRecords
from dalsegno.app import App
from dalsegno.server.application import create_application
from dalsegno.server.http.request import COOKIE
from tests.server.short_deadlines import DEADLINE, SETTINGS, executions, in_a_hurry, started, unknown, until
from tests.server.silence import Witness
from tests.servers.postgres import PostgresServer

IN_TIME = 3.0
"""Seconds: the machine may be busy."""


@pytest.fixture
def store_url(private_postgres: PostgresServer) -> str:
    return private_postgres.create_database("deadlines")


@pytest.fixture
def application(app: App) -> FastAPI:
    return create_application(app, SETTINGS)


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
        ("POST", "/v1/executions/{id}/cancel", None, "Check whether it took effect"),
        ("PUT", "/v1/limits/x", {"concurrency": 1}, "Send it again: a second call"),
        ("DELETE", "/v1/executions/{id}", None, "Send it again: a second call"),
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
    services, stack = application.state.services, app.client.stack
    await KeyRecords(stack.records, stack.clock).add("somebody", ["admin"])
    services.authenticator.look_again()
    await services.authenticator.keys()
    services.authenticator.patience = DEADLINE
    session = {"Cookie": f"{COOKIE}={'0' * 64}"}
    async with in_a_hurry(http), witness.silence():
        for method, path in (("GET", "/v1/executions"), ("GET", "/v1/health"), ("POST", "/v1/hooks/some")):
            reply = await witness.ask(method, path, IN_TIME, headers=session, content=b"{}")
            assert (reply.status_code, reply.json()["code"]) == (503, "DS-210"), path
            assert reply.json()["detail"].endswith("nothing was done")
