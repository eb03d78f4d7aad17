"""Waits for many executions over one connection."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dalsegno.app import App
from tests.server.conftest import LiveServer
from tests.server.streaming import Sent, read_stream
from tests.server.test_waiting import started

URL = "/v1/executions/endings"


async def release(http: httpx.AsyncClient, execution: str, by: str = "Ann") -> None:
    await http.post(f"/v1/executions/{execution}/signals", json={"name": "go", "payload": {"by": by}})


async def all_sent(http: httpx.AsyncClient, *executions: str, seconds: float = 30) -> list[Sent]:
    body = {"executions": list(executions), "seconds": seconds}
    async with http.stream("POST", URL, json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        return [event async for event in read_stream(answer) if event.kind != ":"]


async def test_those_that_have_ended_come_first(http: httpx.AsyncClient) -> None:
    ended, waits = await started(http), await started(http)
    await release(http, ended)
    await http.get(f"/v1/executions/{ended}/wait")
    sent = await all_sent(http, ended, waits, "0123", ended, seconds=0.05)

    assert sorted(each.kind for each in sent[:2]) == ["ended", "refused"]
    by_kind = {each.kind: each.data for each in sent}
    assert [each.kind for each in sent[2:]] == ["checked", "end"]
    assert (by_kind["ended"]["id"], by_kind["ended"]["output"]) == (ended, "Ann")
    assert (by_kind["refused"]["id"], by_kind["refused"]["problem"]["code"]) == ("0123", "DS-130")
    assert by_kind["end"] == {"open": 1}


async def test_each_comes_when_it_ends_and_the_last_one_ends_the_stream(app: App) -> None:
    with LiveServer(app) as live:
        async with httpx.AsyncClient(base_url=live.url, timeout=30) as http:
            executions = [await started(http) for _ in range(3)]
            came: list[Any] = []
            async with http.stream("POST", URL, json={"executions": executions}) as answer:
                async for event in read_stream(answer):
                    came.append((event.kind, event.data.get("id")))
                    if event.kind in ("checked", "ended") and len(came) <= 3:
                        await release(http, executions[len(came) - 1])
            assert came == [
                ("checked", None),
                *(("ended", execution) for execution in executions),
                ("end", None),
            ]


async def test_a_server_that_stops_ends_the_stream(http: httpx.AsyncClient, application: FastAPI) -> None:
    execution = await started(http)
    waiting = asyncio.create_task(all_sent(http, execution, seconds=60))
    await asyncio.sleep(0.1)
    application.state.services.closing.set()
    began = time.monotonic()
    assert [each.kind for each in await waiting] == ["checked"]
    assert time.monotonic() - began < 30


async def test_many_are_waited_for_together(http: httpx.AsyncClient) -> None:
    """A body that is read in a process."""
    ended, waits = await started(http), await started(http)
    await release(http, ended)
    sent = await all_sent(http, waits, *(f"{n:032x}" for n in range(4000)), ended, seconds=5)
    kinds = [each.kind for each in sent]
    assert (kinds.count("refused"), kinds.count("ended")) == (4000, 1)
    assert sent[-1].data == {"open": 1}


@pytest.mark.parametrize("body", [{"executions": []}, {"executions": ["a"] * 10_001}, {"seconds": 1}])
async def test_what_cannot_be_waited_for_is_refused(http: httpx.AsyncClient, body: dict[str, Any]) -> None:
    assert (await http.post(URL, json=body)).status_code == 422
