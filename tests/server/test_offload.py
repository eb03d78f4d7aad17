"""Hostile requests do not hold up the event loop, other callers, or the processes that work on them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from dalsegno.app import App
from dalsegno.engine.settings import EngineLimits, EngineSettings
from dalsegno.engine.subprocesses.examination import value_of
from dalsegno.engine.subprocesses.job_pool import Offload, OffloadLimits, Requester, requester
from dalsegno.errors import LimitExceeded, Overloaded, TooSlow
from dalsegno.server import ServerSettings
from dalsegno.server.application import create_application
from tests.loop_gaps import LoopGaps
from tests.server.conftest import LiveServer
from tests.waiting import come_about, until

pytestmark = pytest.mark.own_interpreter
ON_MEMORY = pytest.mark.parametrize("store_url", ["memory"], indirect=True)
MOST_WORK = 0.08
"""Seconds of processor time that the loop's own thread may take between two rounds, whatever else the machine does.
Most take less than 0.01, and several times as long on a machine that is overloaded."""
MOST_GAP = 0.5
"""Seconds from one round of the loop to the next while the machine gave it a core."""


class Lag(LoopGaps):
    @property
    def is_short(self) -> bool:
        return self.worked < MOST_WORK and self.longest < MOST_GAP


@contextlib.asynccontextmanager
async def watched() -> AsyncIterator[Lag]:
    """Without collections: what they take depends on all that other tests have left in this process."""
    gc.disable()
    try:
        async with Lag() as lag:
            yield lag
    finally:
        gc.enable()


def wide_graph(nodes: int, name: str = "wide") -> dict[str, Any]:
    listed = [{"id": f"n{number}", "type": "log", "parameters": {"message": "x"}} for number in range(nodes)]
    return {"name": name, "nodes": listed, "edges": []}


def long_script(size: int) -> str:
    line = "  total = total + inputs.n * 3 - 1\n"
    return "workflow long(inputs) {\n  let total = 0\n" + line * (size // len(line)) + "  return total\n}\n"


def doubled(times: int) -> dict[str, Any]:
    defs: dict[str, Any] = {"a0": {"type": "object"}}
    for number in range(1, times + 1):
        defs[f"a{number}"] = {"allOf": [{"$ref": f"#/$defs/a{number - 1}"}] * 2}
    return {"$ref": f"#/$defs/a{times}", "$defs": defs}


async def deployed(http: httpx.AsyncClient, document: dict[str, Any]) -> None:
    reply = await http.post("/v1/definitions", json=document, timeout=60)
    assert reply.status_code in (200, 201), reply.text


async def test_schema_checks_leave_the_loop_alone() -> None:
    """With a tenth of the steps: all of them are six seconds of a core, and many more of a busy one."""
    app = App("memory:", settings=EngineSettings(limits=EngineLimits(schema_steps=300_000)))
    application = create_application(app, ServerSettings(check_seconds=60.0))
    transport = httpx.ASGITransport(application, raise_app_exceptions=False)
    async with (
        application.router.lifespan_context(application),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", timeout=60) as http,
    ):
        await deployed(http, wide_graph(1, "doubled") | {"input_schema": doubled(40)})
        unique = {"properties": {"a": {"uniqueItems": True}}}
        await deployed(http, wide_graph(1, "unique") | {"input_schema": unique})
        async with watched() as lag:
            refused = await http.post("/v1/executions", json={"workflow": "doubled", "input": {}})
            items = [{"n": number, "m": [number]} for number in range(3_000)]
            started = await http.post("/v1/executions", json={"workflow": "unique", "input": {"a": items}})
    assert refused.status_code == 422, refused.text
    assert "schema_steps" in refused.json()["detail"]
    assert started.status_code == 201, started.text
    assert lag.is_short, vars(lag)


@ON_MEMORY
async def test_large_definitions_leave_the_loop_alone(http: httpx.AsyncClient) -> None:
    body = json.dumps(wide_graph(10_000))
    await http.get("/v1/definitions/none")  # the framework prepares its routes with the first request
    async with watched() as lag:
        posted = await http.post(
            "/v1/definitions", content=body, headers={"Content-Type": "application/json"}, timeout=60
        )
        found = await http.get("/v1/definitions/wide", timeout=60)
        diff = await http.get("/v1/definitions/wide/diff?before=1&after=1", timeout=60)
    assert posted.status_code == 201, posted.text
    assert lag.is_short, vars(lag)
    detail = found.json()
    assert len(detail["document"]["nodes"]) == 10_000
    assert detail["source"].startswith("name: wide\n")
    assert detail["input_schema"] is None
    assert diff.json()["changed"] is False


@ON_MEMORY
async def test_findings_from_a_process_are_those_of_a_thread(http: httpx.AsyncClient) -> None:
    async def wrong(nodes: int) -> dict[str, Any]:
        document = wide_graph(nodes)
        document["nodes"][0]["type"] = "no-such-type"
        reply = await http.post("/v1/definitions", json=document, timeout=60)
        assert reply.status_code == 422
        found: dict[str, Any] = reply.json()
        return found

    assert await wrong(1) == await wrong(1_000)
    tail = "  return missing\n"
    pairs = [("workflow w(inputs) {\n" + filler + tail + "}\n") for filler in ("", "  // x\n" * 3_000)]
    short, long = [
        (await http.post("/v1/definitions", json={"source": text, "kind": "script"}, timeout=60)).json()
        for text in pairs
    ]
    assert [each["rule"] for each in short["errors"]] == [each["rule"] for each in long["errors"]]
    assert short["code"] == long["code"]


@ON_MEMORY
async def test_the_api_description_leaves_the_loop_alone(http: httpx.AsyncClient) -> None:
    """It is rendered in a thread. Garbage collections there stop the loop; those of the youngest objects are short."""
    passes: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        thread = threading.current_thread()
        if phase == "start" and info["generation"] and thread is not threading.main_thread():
            passes.append(thread.name)

    await http.get("/v1/definitions/none")
    gc.callbacks.append(note)
    try:
        async with watched() as lag:
            described = await http.get("/v1/openapi.json")
    finally:
        gc.callbacks.remove(note)
    assert described.json()["paths"]
    assert len(passes) <= 1  # the one that was due when it had ended
    assert lag.worked < MOST_WORK
    assert gc.isenabled()


@pytest.fixture
async def keyed(app: App) -> AsyncIterator[tuple[httpx.AsyncClient, dict[str, str], dict[str, str]]]:
    """A server with two keys: one that may read, one that may run."""
    application = create_application(app, ServerSettings(check_seconds=60.0, check_processes=2))
    async with application.router.lifespan_context(application):
        transport = httpx.ASGITransport(application, raise_app_exceptions=False)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8700", timeout=60
        ) as client:
            made = await client.post("/v1/keys", json={"name": "boss", "scopes": ["admin"]})
            boss = {"Authorization": f"Bearer {made.json()['key']}"}
            headers = []
            for scope in ("read", "run"):
                reply = await client.post("/v1/keys", json={"name": scope, "scopes": [scope]}, headers=boss)
                headers.append({"Authorization": f"Bearer {reply.json()['key']}"})
            yield client, headers[0], headers[1]


@ON_MEMORY
async def test_a_deploy_does_not_wait_for_scripts_of_another_key(
    app: App, keyed: tuple[httpx.AsyncClient, dict[str, str], dict[str, str]]
) -> None:
    client, reader, runner = keyed
    body = {"source": long_script(500_000), "kind": "script"}
    async with watched() as lag:
        hostile = [
            asyncio.create_task(client.post("/v1/definitions/validate", json=body, headers=reader))
            for _ in range(3)
        ]
        pool = app.engine.definitions.offload
        await come_about(lambda: pool.processes == 1, "a process works on a script")
        reply = await client.post("/v1/definitions", json=wide_graph(3, "honest"), headers=runner)
        large = await client.post("/v1/definitions", json=wide_graph(1_000, "larger"), headers=runner)
        done = [each for each in hostile if each.done()]
        for each in hostile:
            each.cancel()
        await asyncio.gather(*hostile, return_exceptions=True)
    assert reply.status_code == large.status_code == 201
    assert not done, "one process is left for other keys"
    assert lag.is_short, vars(lag)


@ON_MEMORY
def test_a_caller_that_disconnects_frees_its_process(app: App) -> None:
    """Over a real connection. Without the disconnection the work would take its 60 seconds."""
    with LiveServer(app, ServerSettings(check_seconds=60.0)) as server:
        pool = app.engine.definitions.offload
        body = json.dumps({"source": long_script(900_000), "kind": "script"}).encode()
        address = httpx.URL(server.url)
        with socket.create_connection((address.host, address.port or 80)) as connection:
            head = f"POST /v1/definitions/validate HTTP/1.1\r\nHost: {address.netloc.decode()}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            until(lambda: pool.processes == 1, "the process")
        left = time.perf_counter()
        until(lambda: pool.processes == 0, "the process has ended")
        assert time.perf_counter() - left < 30


# -- the pool itself ------------------------------------------------------------------------------------------------

SLOW = {"is_script": True, "content": long_script(400_000)}
QUICK = {"is_script": True, "content": "return 1"}


@pytest.fixture
async def pool() -> AsyncIterator[Offload]:
    made = Offload(OffloadLimits(processes=2, seconds=1.0, queue=2))
    yield made
    await made.close()


async def test_a_job_over_its_time_is_ended_and_the_pool_goes_on(pool: Offload) -> None:
    with pytest.raises(LimitExceeded, match="check_seconds"):
        await pool.large("validate", SLOW)
    assert pool.processes == 0
    pool.configure(OffloadLimits(processes=2, seconds=30.0, queue=2))  # the next process has to start first
    assert value_of(await pool.large("validate", QUICK))["valid"]
    assert pool.processes == 1


async def test_a_job_over_its_memory_is_ended_and_the_pool_goes_on(pool: Offload) -> None:
    pool.configure(OffloadLimits(memory_bytes=160 * 1024 * 1024))
    raw = b"[" + b"[]," * 3_000_000 + b"1]"
    with pytest.raises(LimitExceeded, match="memory"):
        value_of(await pool.large("fit", b"{}", raw, 10))
    assert value_of(await pool.large("fit", b'{"type":"integer"}', b"1", 10)) == []


async def test_a_job_ends_when_its_caller_has_gone(pool: Offload) -> None:
    pool.configure(OffloadLimits(processes=1, seconds=60))
    left = asyncio.Event()

    async def gone() -> None:
        await left.wait()

    async def asked() -> None:
        requester.set(Requester("a", gone))
        await pool.large("validate", SLOW)

    job = asyncio.create_task(asked())
    await come_about(lambda: pool.processes == 1, "the process")
    left.set()
    with pytest.raises(TooSlow):
        await asyncio.wait_for(job, 40)
    assert pool.processes == 0
    assert value_of(await pool.large("validate", QUICK))["valid"]


async def as_caller(pool: Offload, key: str, ended: list[str]) -> None:
    requester.set(Requester(key))
    await pool.large("validate", QUICK)
    ended.append(key)


async def test_callers_take_turns(pool: Offload) -> None:
    pool.configure(OffloadLimits(processes=1, queue=100))
    ended: list[str] = []
    await asyncio.gather(
        *(as_caller(pool, "many", ended) for _ in range(12)),
        *(as_caller(pool, "few", ended) for _ in range(2)),
    )
    assert ended.index("few") <= 2
    assert [place for place, key in enumerate(ended) if key == "few"][1] <= 4


async def test_a_full_queue_refuses_its_caller_only(pool: Offload) -> None:
    pool.configure(OffloadLimits(processes=2, queue=2))
    ended: list[str] = []
    results = await asyncio.gather(
        *(as_caller(pool, "many", ended) for _ in range(6)),
        as_caller(pool, "few", ended),
        return_exceptions=True,
    )
    assert sum(isinstance(each, Overloaded) for each in results[:6]) >= 3
    assert results[6] is None


async def test_a_process_ends_when_it_is_idle(pool: Offload) -> None:
    pool.configure(OffloadLimits(idle_seconds=0.05))
    await pool.large("validate", QUICK)
    await come_about(lambda: pool.processes == 0, "the process")
