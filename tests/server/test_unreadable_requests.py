"""What cannot be read or kept is refused with the place and the cure, the same on every store."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

GRAPH: dict[str, Any] = {
    "name": "g",
    "nodes": [{"id": "a", "type": "log", "parameters": {"message": "x"}}],
}
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/v1/executions/%00", "/path/execution"),
        ("/v1/definitions/g%00", "/path/name"),
        ("/v1/executions?text=%00", "/query/text"),
        ("/v1/executions?workflow=a%00", "/query/workflow"),
        ("/v1/executions?parent=%00", "/query/parent"),
        ("/v1/executions?tag=a%00%3Db", "/query/tag"),
    ],
)
async def test_nul_in_a_path_or_query(http: httpx.AsyncClient, path: str, place: str) -> None:
    refused = await http.get(path)
    assert (refused.status_code, refused.json()["code"]) == (422, "DS-120")
    assert refused.json()["detail"].startswith(f"{place}: ")
    assert "NUL" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/executions", {"workflow": "g", "idempotency_key": "\0"}, "idempotency_key"),
        ("/v1/executions", {"workflow": "g\0"}, "workflow"),
        ("/v1/executions", {"workflow": "g", "version": "a\0"}, "version"),
        ("/v1/workflows", {**GRAPH, "idempotency_key": "a\0"}, "idempotency_key"),
        ("/v1/definitions", {"document": GRAPH, "name": "a\0"}, "name"),
        ("/v1/schedules", {"name": "n", "workflow": "g\0", "timing": "@daily"}, "workflow"),
        ("/v1/executions/0198f3/signals", {"name": "a", "id": "\0"}, "id"),
        ("/v1/executions/0198f3/rerun", {"nodes": ["a\0"]}, "nodes"),
    ],
)
async def test_nul_in_a_body(http: httpx.AsyncClient, path: str, body: dict[str, Any], field: str) -> None:
    refused = await http.post(path, json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "DS-120"), refused.text
    assert refused.json()["errors"][0]["pointer"] == f"/body/{field}"
    assert "NUL" in refused.json()["errors"][0]["message"]


async def test_data_may_hold_nul(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=GRAPH)
    started = await http.post("/v1/executions", json={"workflow": "g", "input": {"a\0": "\0"}})
    assert started.status_code == 201, started.text
    assert started.json()["input"] == {"a\0": "\0"}


@pytest.mark.parametrize("path", ["/v1/executions", "/v1/definitions"])
async def test_a_body_that_is_nested_too_deep_is_told_so(http: httpx.AsyncClient, path: str) -> None:
    body = b'{"workflow":"g","input":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    refused = await http.post(path, content=body, headers=JSON)
    assert (refused.status_code, refused.json()["code"]) == (422, "DS-140")
    assert "nested more than 200 levels deep" in refused.json()["detail"]


@pytest.mark.parametrize("path", ["/v1/executions", "/v1/definitions", "/v1/hooks/some"])
async def test_an_encoded_body_is_refused_by_its_encoding(http: httpx.AsyncClient, path: str) -> None:
    refused = await http.post(path, content=b"\x1f\x8b", headers={**JSON, "Content-Encoding": "gzip"})
    assert (refused.status_code, refused.json()["code"]) == (415, "DS-192")
    assert "Content-Encoding: gzip" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("path", "others"),
    [
        ("/v1/definitions", ("application/yaml", "application/vnd.dalsegno.flow")),
        ("/v1/definitions/validate", ("application/yaml", "application/vnd.dalsegno.flow")),
        ("/v1/executions", ()),
        ("/v1/definitions/g/aliases/a", ()),
        ("/v1/approvals/links/abc", ("application/x-www-form-urlencoded",)),
    ],
)
async def test_a_type_that_is_not_taken_is_answered_with_those_that_are(
    http: httpx.AsyncClient, path: str, others: tuple[str, ...]
) -> None:
    refused = await http.put(path, content=b"return 1", headers={"Content-Type": "text/plain"})
    detail = refused.json()["detail"]
    assert refused.status_code == 415
    assert "'text/plain' is not accepted here" in detail
    named = [each.removeprefix("Content-Type: ") for each in detail.split("'") if "Content-Type: " in each]
    assert named == ["application/json", *others]
