"""A workflow's ``concurrency.key`` is evaluated while its caller waits: it may use very little."""

from __future__ import annotations

import httpx
import pytest

from tests.loop_gaps import LoopGaps

PRODUCT = "$trigger.items.map(a => $trigger.items.map(b => a + b).length).length"


@pytest.mark.parametrize("store_url", ["memory"], indirect=True)
async def test_an_expensive_key_is_refused_at_once(http: httpx.AsyncClient) -> None:
    document = {
        "name": "keyed",
        "concurrency": {"key": PRODUCT, "limit": 1},
        "nodes": [{"id": "a", "type": "log", "parameters": {"message": "ran"}}],
    }
    assert (await http.post("/v1/definitions", json=document)).status_code == 201
    async with LoopGaps() as gaps:
        start = {"workflow": "keyed", "input": {"items": list(range(1200))}}
        refused = await http.post("/v1/executions", json=start)
    assert refused.status_code == 422, refused.text
    assert "the limit key_instructions of 20,000" in refused.text
    assert gaps.longest < 0.1

    start = {"workflow": "keyed", "input": {"items": [1, 2]}}
    assert (await http.post("/v1/executions", json=start)).status_code == 201
