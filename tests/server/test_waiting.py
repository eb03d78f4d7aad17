"""Long polls: an answer when something has ended, or when the time is over, or when the server stops."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
from fastapi import FastAPI

WAITS: dict[str, Any] = {
    "name": "waits",
    "nodes": [
        {"id": "go", "type": "wait", "parameters": {"resume": "signal", "signal": "go", "timeout": "1h"}}
    ],
    "output": "$go.by",
}


async def started(http: httpx.AsyncClient) -> str:
    reply = await http.post("/v1/executions", json={"definition": WAITS})
    return str(reply.json()["id"])


async def test_the_answer_comes_when_it_has_ended(http: httpx.AsyncClient) -> None:
    execution = await started(http)
    waiting = asyncio.create_task(http.get(f"/v1/executions/{execution}/wait?seconds=30"))
    await asyncio.sleep(0)
    await http.post(f"/v1/executions/{execution}/signals", json={"name": "go", "payload": {"by": "Ann"}})
    reply = (await waiting).json()
    assert (reply["state"], reply["output"]) == ("COMPLETED", "Ann")
    again = (await http.get(f"/v1/executions/{execution}/wait")).json()
    assert again["state"] == "COMPLETED"


async def test_the_answer_comes_when_the_time_is_over(http: httpx.AsyncClient) -> None:
    execution = await started(http)
    reply = await http.get(f"/v1/executions/{execution}/wait?seconds=0.05")
    assert reply.status_code == 200
    assert reply.json()["state"] == "RUNNING"


async def test_the_answer_comes_when_the_server_stops(http: httpx.AsyncClient, application: FastAPI) -> None:
    execution = await started(http)
    waiting = asyncio.create_task(http.get(f"/v1/executions/{execution}/wait?seconds=60"))
    began = time.monotonic()
    await asyncio.sleep(0.05)
    application.state.services.closing.set()
    assert (await waiting).json()["state"] == "RUNNING"
    assert time.monotonic() - began < 30


async def test_what_cannot_be_waited_for_is_told(http: httpx.AsyncClient) -> None:
    assert (await http.get("/v1/executions/0123/wait")).status_code == 404
    assert (await http.get("/v1/executions/0123/wait?seconds=61")).status_code == 422
