"""Servers whose calls have little time, and what their callers are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx

from dalsegno.app import App
from dalsegno.server import ServerSettings
from dalsegno.server.application import create_application

DEADLINE = 0.5
SCRIPT = "workflow waits(inputs) { return await Signal.when('go') }"
SETTINGS = ServerSettings(keys_seconds=600.0)
"""Callers are let in by the keys that are known: as those who come just before a silence."""


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
async def in_a_hurry(http: httpx.AsyncClient, seconds: float = DEADLINE) -> AsyncIterator[None]:
    """Not from the beginning: what a test prepares may take its time on a busy machine."""
    services = http._transport.app.state.services  # type: ignore[attr-defined]
    services.settings, usual = (
        replace(services.settings, change_seconds=seconds, read_seconds=seconds),
        services.settings,
    )
    try:
        yield
    finally:
        services.settings = usual


def unknown(reply: httpx.Response) -> str:
    """What is advised to somebody who is told that nobody knows."""
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1"), reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json()["code"] == "DS-210"
    fact, _, advice = reply.json()["detail"].partition("or not at all. ")
    assert f"did not confirm this within {DEADLINE:g} s" in fact
    return str(advice)


@asynccontextmanager
async def serving(app: App | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """A server that has started an execution before."""
    application = create_application(app or App("memory:"), SETTINGS)
    async with application.router.lifespan_context(application):
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as client:
            await started(client)
            yield client
