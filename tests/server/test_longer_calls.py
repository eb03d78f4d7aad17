"""Calls that may take longer than others: they wait for something that their callers know to take its time."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from dalsegno.server.executions import bulk
from tests.server.short_deadlines import DEADLINE, executions, in_a_hurry, serving, started


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
    act, seconds = bulk._act, 4 * DEADLINE

    async def slowly(*args: Any) -> list[str | None]:
        await asyncio.sleep(0.4 * seconds)
        return await act(*args)

    monkeypatch.setattr(bulk, "_act", slowly)
    monkeypatch.setattr(bulk, "CHUNK", 1)
    async with serving() as http:
        for _ in range(2):
            await started(http)
        async with in_a_hurry(http, seconds):
            reply = await http.post("/v1/executions/bulk", json={"action": "pause", "all": True}, timeout=30)
        assert (reply.status_code, reply.json()["changed"]) == (200, 3), reply.text
