"""A PostgreSQL that stands still, as in a machine that is frozen: it takes connections and says nothing on any."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from dalsegno.adapters.postgres.store import PostgresStore
from dalsegno.app import App
from dalsegno.engine.stack import Stack
from dalsegno.errors import Unavailable
from dalsegno.server import ServerSettings, create_application, reaching
from dalsegno.server.doorman import Doorman
from dalsegno.server.keys import KeyBook
from dalsegno.server.sessions import COOKIE
from tests.servers.postgres import PostgresServer

SOON = 1.0
AFTER_A_LOOK = 4.0
"""Seconds: the store has two, and the machine may be busy."""
KEYS_SECONDS = 0.1
START = {
    "definition": {
        "name": "g",
        "nodes": [{"id": "n", "type": "task", "parameters": {"task": "double", "input": 1}}],
    }
}


@pytest.fixture
def store_url(private_postgres: PostgresServer) -> str:
    return private_postgres.create_database("silent")


@pytest.fixture
def application(app: App) -> FastAPI:
    """Its keys are soon too old to go by."""
    return create_application(app, ServerSettings(keys_seconds=KEYS_SECONDS))


@pytest.fixture
async def key(http: httpx.AsyncClient, app: App) -> str:
    """Of somebody whom the server has seen before the store fell silent."""
    stack = app.client.stack
    _, text = await KeyBook(stack.records, stack.clock).add("probe", ["run"])
    await asyncio.sleep(2 * KEYS_SECONDS)
    assert (await http.get("/v1/health", headers=bearer(text))).status_code == 200
    return text


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@contextmanager
def standing_still(server: PostgresServer) -> Iterator[None]:
    """The postmaster first, so that nobody new is there when its children are listed."""
    stopped: list[int] = []
    try:
        stop(server.pid, stopped)
        while running := children_of(server.pid) - set(stopped):  # of those that run, the list may miss some
            for child in running:
                stop(child, stopped)
        yield
    finally:
        for process in stopped:
            os.kill(process, signal.SIGCONT)


def stop(process: int, stopped: list[int]) -> None:
    os.kill(process, signal.SIGSTOP)
    stopped.append(process)


def children_of(process: int) -> set[int]:
    return set(map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()))


@asynccontextmanager
async def silence(server: PostgresServer) -> AsyncIterator[None]:
    with standing_still(server):
        await asyncio.sleep(2 * KEYS_SECONDS)
        yield


async def answer(
    http: httpx.AsyncClient, path: str, seconds: float, headers: dict[str, str] | None = None
) -> httpx.Response:
    began = time.monotonic()
    async with asyncio.timeout(3 * seconds):
        reply = await http.get(path, headers=headers)
    assert time.monotonic() - began < seconds
    return reply


async def test_a_server_without_keys_is_alive(
    http: httpx.AsyncClient, private_postgres: PostgresServer
) -> None:
    async with silence(private_postgres):
        for _ in range(3):
            assert (await answer(http, "/v1/health/live", SOON)).json()["status"] == "ok"


@pytest.mark.usefixtures("key")
async def test_a_server_with_keys_is_alive(http: httpx.AsyncClient, private_postgres: PostgresServer) -> None:
    async with silence(private_postgres):
        assert (await answer(http, "/v1/health/live", SOON)).json()["status"] == "ok"


async def test_it_is_not_ready_until_the_store_speaks_again(
    http: httpx.AsyncClient, private_postgres: PostgresServer
) -> None:
    async with silence(private_postgres):
        for _ in range(2):
            reply = await answer(http, "/v1/health/ready", AFTER_A_LOOK)
            assert (reply.status_code, reply.json()["code"]) == (503, "DS-210")
            assert "did not answer within 2 s" in reply.json()["detail"]
            assert reply.headers["retry-after"] == "1"
            assert reply.headers["content-type"] == "application/problem+json"
    assert (await answer(http, "/v1/health/ready", AFTER_A_LOOK)).status_code == 200


async def test_a_look_that_is_given_up_does_not_wait_for_the_silent_store(
    store_url: str, private_postgres: PostgresServer
) -> None:
    """Not even to tell it so: the connection is closed."""
    store = await PostgresStore.open(store_url)
    await store.expect_writable()
    async with silence(private_postgres):
        look = asyncio.create_task(store.expect_writable())
        await asyncio.wait({look}, timeout=0.2)
        look.cancel()
        done, _ = await asyncio.wait({look}, timeout=SOON)
    assert done
    await store.expect_writable()
    await store.close()


async def test_health_without_keys_says_that_the_store_is_down(
    http: httpx.AsyncClient, private_postgres: PostgresServer
) -> None:
    async with silence(private_postgres):
        for _ in range(2):
            health = await answer(http, "/v1/health", AFTER_A_LOOK)
            assert (health.status_code, health.json()["status"]) == (200, "down")
            assert [each["name"] for each in health.json()["parts"]] == ["store"]


async def test_health_with_keys_says_so_to_keys_that_were_known(
    http: httpx.AsyncClient, key: str, private_postgres: PostgresServer
) -> None:
    async with silence(private_postgres):
        health = await answer(http, "/v1/health", AFTER_A_LOOK, bearer(key))
        assert (health.status_code, health.json()["status"]) == (200, "down")
        assert (await answer(http, "/v1/health", AFTER_A_LOOK)).status_code == 401
        wrong = key[:-1] + ("0" if key[-1] != "0" else "1")
        assert (await answer(http, "/v1/health", AFTER_A_LOOK, bearer(wrong))).status_code == 401
        session = {"Cookie": f"{COOKIE}={'0' * 64}"}  # which only the store could tell from another
        assert (await answer(http, "/v1/health", AFTER_A_LOOK, session)).status_code == 503


async def test_health_does_not_go_by_keys_of_which_one_was_revoked_here(
    http: httpx.AsyncClient, application: FastAPI, key: str, private_postgres: PostgresServer
) -> None:
    application.state.office.doorman.look_again()
    async with silence(private_postgres):
        assert (await answer(http, "/v1/health", AFTER_A_LOOK, bearer(key))).status_code == 503


async def test_noted_uses_of_keys_leave_them_known(
    http: httpx.AsyncClient, application: FastAPI, key: str, private_postgres: PostgresServer
) -> None:
    await application.state.office.doorman.write_uses()
    async with silence(private_postgres):
        assert (await answer(http, "/v1/health", AFTER_A_LOOK, bearer(key))).json()["status"] == "down"


async def test_a_start_that_cannot_be_admitted_is_refused_in_time(
    http: httpx.AsyncClient, application: FastAPI, private_postgres: PostgresServer
) -> None:
    application.state.office.doorman.patience = 1.0
    async with silence(private_postgres), asyncio.timeout(AFTER_A_LOOK):
        refused = await http.post("/v1/executions", json=START)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert "nothing was done" in refused.json()["detail"]
    async with asyncio.timeout(30):  # the keys come as soon as the store speaks
        while (await http.post("/v1/executions", json=START)).status_code != 201:  # noqa: ASYNC110 - it only answers
            await asyncio.sleep(0.05)
    assert len((await http.get("/v1/executions")).json()["items"]) == 1


# -- whatever the driver does -----------------------------------------------------------------------------------


class Stubborn:
    """A driver that takes its time to give up."""

    def __init__(self) -> None:
        self.asked = 0
        self.was_asked = asyncio.Event()
        self.gave_up = False
        self.may_end = asyncio.Event()

    async def look(self) -> None:
        self.asked += 1
        self.was_asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            await self.may_end.wait()
            self.gave_up = True


@pytest.fixture
async def stack() -> AsyncIterator[Stack]:
    app = App("memory:")
    async with app.running(worker=False, scheduler=False):
        yield app.client.stack


async def test_the_answer_comes_before_the_driver_has_given_up_and_it_is_asked_once(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaching, "PATIENCE", 0.05)
    driver = Stubborn()
    stubborn = replace(stack, expect_writable=driver.look)
    async with asyncio.timeout(5):
        for _ in range(3):
            with pytest.raises(Unavailable, match="did not answer"):
                await reaching.ask_store(stubborn)
        assert (driver.asked, driver.gave_up) == (1, False)
        driver.may_end.set()
        await reaching.end_look(stubborn)
    assert driver.gave_up


async def test_a_look_is_ended_when_the_server_stops(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "PARTING", 0.05)
    driver = Stubborn()
    stubborn = replace(stack, expect_writable=driver.look)
    asking = asyncio.create_task(reaching.ask_store(stubborn))
    await driver.was_asked.wait()
    driver.may_end.set()
    async with asyncio.timeout(5):
        await reaching.end_look(stubborn)
        assert driver.gave_up
        with pytest.raises(Unavailable):
            await asking


async def test_keys_are_read_once_at_a_time_and_no_more_when_the_server_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Stubborn()
    monkeypatch.setattr(KeyBook, "all", lambda _: driver.look())
    async with App("memory:").running(worker=False, scheduler=False) as app, asyncio.timeout(5):
        doorman = Doorman(app, ServerSettings())
        for _ in range(3):
            with pytest.raises(Unavailable, match="did not tell the keys"):
                await doorman.keys(0.05)
        assert (driver.asked, driver.gave_up) == (1, False)
        driver.may_end.set()
        await doorman.close()
        assert driver.gave_up
