"""A PostgreSQL that stands still, as in a machine that is frozen: it takes connections and says nothing on any."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
from fastapi import FastAPI

from dalsegno.adapters.postgres.store import PostgresStore
from dalsegno.admin.keys import KeyRecords
from dalsegno.app import App
from dalsegno.errors import Unavailable
from dalsegno.ports.stack import Stack
from dalsegno.server import ServerSettings
from dalsegno.server.application import create_application
from dalsegno.server.auth.authentication import Authenticator
from dalsegno.server.http.request import COOKIE
from dalsegno.server.operations import metrics, store_probe
from dalsegno.server.services import ServerServices
from tests.server.silence import AFTER_A_LOOK, KEYS_SECONDS, Witness, silence
from tests.servers.postgres import PostgresServer

SOON = 1.0
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
    _, text = await KeyRecords(stack.records, stack.clock).add("probe", ["run"])
    await asyncio.sleep(2 * KEYS_SECONDS)
    assert (await http.get("/v1/health", headers=bearer(text))).status_code == 200
    return text


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_a_server_without_keys_is_alive(witness: Witness) -> None:
    async with witness.silence():
        for _ in range(3):
            assert (await witness.get("/v1/health/live", SOON)).json()["status"] == "ok"


@pytest.mark.usefixtures("key")
async def test_a_server_with_keys_is_alive(witness: Witness) -> None:
    async with witness.silence():
        assert (await witness.get("/v1/health/live", SOON)).json()["status"] == "ok"


async def test_it_is_not_ready_until_the_store_speaks_again(witness: Witness) -> None:
    for reply in await witness.get_twice("/v1/health/ready"):
        assert (reply.status_code, reply.json()["code"]) == (503, "DS-210")
        assert "did not answer within 2 s" in reply.json()["detail"]
        assert reply.headers["retry-after"] == "1"
        assert reply.headers["content-type"] == "application/problem+json"
    assert (await witness.get("/v1/health/ready")).status_code == 200


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


async def test_health_without_keys_says_that_the_store_is_down(witness: Witness) -> None:
    for health in await witness.get_twice("/v1/health"):
        assert (health.status_code, health.json()["status"]) == (200, "down")
        assert [each["name"] for each in health.json()["parts"]] == ["store"]


async def test_health_with_keys_says_so_to_keys_that_were_known(witness: Witness, key: str) -> None:
    async with witness.silence():
        health = await witness.get("/v1/health", headers=bearer(key))
        assert (health.status_code, health.json()["status"]) == (200, "down")
        assert (await witness.get("/v1/health")).status_code == 401
        wrong = key[:-1] + ("0" if key[-1] != "0" else "1")
        assert (await witness.get("/v1/health", headers=bearer(wrong))).status_code == 401
        session = {"Cookie": f"{COOKIE}={'0' * 64}"}  # which only the store could tell from another
        assert (await witness.get("/v1/health", headers=session)).status_code == 503


async def test_health_does_not_go_by_keys_of_which_one_was_revoked_here(
    witness: Witness, application: FastAPI, key: str
) -> None:
    application.state.services.authenticator.look_again()
    async with witness.silence():
        assert (await witness.get("/v1/health", headers=bearer(key))).status_code == 503


async def test_noted_uses_of_keys_leave_them_known(witness: Witness, application: FastAPI, key: str) -> None:
    await application.state.services.authenticator.write_uses()
    async with witness.silence():
        assert (await witness.get("/v1/health", headers=bearer(key))).json()["status"] == "down"


@pytest.fixture
def hasty_scrapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "PATIENCE", store_probe.PATIENCE)


@pytest.mark.usefixtures("hasty_scrapes")
async def test_metrics_without_keys_tell_what_is_known_and_that_the_store_is_down(witness: Witness) -> None:
    assert store_is_up(await witness.get("/metrics"))
    for scrape in await witness.get_twice("/metrics"):
        assert not store_is_up(scrape)
        assert 'dalsegno_http_requests_total{method="GET",route="/metrics",status="200"}' in scrape.text
    async with asyncio.timeout(30):  # a scrape has little time, which a busy machine may use up
        while not store_is_up(await witness.get("/metrics")):  # noqa: ASYNC110 - it only answers
            await asyncio.sleep(0.05)


@pytest.mark.usefixtures("hasty_scrapes")
async def test_metrics_with_keys_do_so_for_keys_that_were_known(witness: Witness, key: str) -> None:
    async with witness.silence():
        assert not store_is_up(await witness.get("/metrics", headers=bearer(key)))
        assert (await witness.get("/metrics")).status_code == 401


def store_is_up(scrape: httpx.Response) -> bool:
    assert scrape.status_code == 200
    (line,) = (line for line in scrape.text.splitlines() if line.startswith("dalsegno_store_up "))
    return line == "dalsegno_store_up 1.0"


async def test_a_start_that_cannot_be_admitted_is_refused_in_time(
    http: httpx.AsyncClient, application: FastAPI, witness: Witness
) -> None:
    application.state.services.authenticator.patience = 1.0
    async with witness.silence(), asyncio.timeout(AFTER_A_LOOK):
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
    monkeypatch.setattr(store_probe, "PATIENCE", 0.05)
    driver = Stubborn()
    stubborn = replace(stack, expect_writable=driver.look)
    async with asyncio.timeout(60):
        for _ in range(3):
            with pytest.raises(Unavailable, match="did not answer"):
                await store_probe.ask_store(stubborn)
        assert (driver.asked, driver.gave_up) == (1, False)
        driver.may_end.set()
        await store_probe.end_look(stubborn)
    assert driver.gave_up


async def test_a_look_is_ended_when_the_server_stops(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_probe, "END_SECONDS", 0.05)
    driver = Stubborn()
    stubborn = replace(stack, expect_writable=driver.look)
    asking = asyncio.create_task(store_probe.ask_store(stubborn))
    await driver.was_asked.wait()
    driver.may_end.set()
    async with asyncio.timeout(60):
        await store_probe.end_look(stubborn)
        assert driver.gave_up
        with pytest.raises(Unavailable):
            await asking


async def test_metrics_look_at_the_store_once_at_a_time_and_no_more_when_the_server_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "PATIENCE", 0.05)
    driver = Stubborn()
    async with App("memory:").running(worker=False, scheduler=False) as app, asyncio.timeout(60):
        monkeypatch.setattr(app.client.stack.ledger, "queues", driver.look)
        services = ServerServices(app, ServerSettings())
        services.use(app.engine)
        for _ in range(3):
            assert b"dalsegno_store_up 0.0" in await metrics.exposition(services)
        assert (driver.asked, driver.gave_up) == (1, False)
        driver.may_end.set()
        await metrics.end_look(app.client.stack)
        assert driver.gave_up


async def test_keys_are_read_once_at_a_time_and_no_more_when_the_server_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Stubborn()
    monkeypatch.setattr(KeyRecords, "all", lambda _: driver.look())
    async with App("memory:").running(worker=False, scheduler=False) as app, asyncio.timeout(60):
        authenticator = Authenticator(ServerSettings())
        authenticator.use(app.client.stack)
        for _ in range(3):
            with pytest.raises(Unavailable, match="did not return the keys"):
                await authenticator.keys(0.05)
        assert (driver.asked, driver.gave_up) == (1, False)
        driver.may_end.set()
        await authenticator.close()
        assert driver.gave_up
