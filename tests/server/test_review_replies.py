"""How replies travel: large ones packed where the caller takes it, live ones never."""

from __future__ import annotations

import httpx

GRAPH = {"name": "greet", "nodes": [{"id": "a", "type": "log", "parameters": {"message": "hi"}}]}


async def test_a_large_reply_is_packed_for_those_who_take_it(http: httpx.AsyncClient) -> None:
    packed = await http.get("/v1/errors", headers={"Accept-Encoding": "gzip"})
    plain = await http.get("/v1/errors", headers={"Accept-Encoding": "identity"})

    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.json() == plain.json()
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 2


async def test_events_are_never_packed_because_packing_holds_them_back(http: httpx.AsyncClient) -> None:
    execution = (await http.post("/v1/executions", json={"definition": GRAPH})).json()["id"]
    stream = await http.get(f"/v1/executions/{execution}/stream", headers={"Accept-Encoding": "gzip"})

    assert "event: end" in stream.text
    assert "content-encoding" not in stream.headers
