"""Limits over HTTP."""

from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI

from dalsegno.admin.keys import KeyRecords
from dalsegno.app import App
from dalsegno.server import ServerSettings
from dalsegno.server.application import create_application


@pytest.fixture
def application(app: App) -> FastAPI:
    """Looks for changed keys at every call."""
    return create_application(app, ServerSettings(keys_seconds=0.0))


async def test_a_limit_is_set_shown_and_taken_away(http: httpx.AsyncClient) -> None:
    made = await http.put("/v1/limits/gmail", json={"concurrency": 5, "rate": "10/s"})
    assert made.status_code == 200
    assert made.json() == {
        "key": "gmail", "concurrency": 5, "rate": "10/s", "in_use": 0, "waiting": 0, "opens_at": None,
    }  # fmt: skip
    await http.put("/v1/limits/a/b%20c", json={"rate": "100/m"})

    first = (await http.get("/v1/limits", params={"limit": 1})).json()
    assert [item["key"] for item in first["items"]] == ["a/b c"]
    second = (await http.get("/v1/limits", params={"limit": 1, "cursor": first["next"]})).json()
    assert [item["key"] for item in second["items"]] == ["gmail"]
    assert second["next"] is None

    assert (await http.delete("/v1/limits/gmail")).status_code == 204
    gone = await http.delete("/v1/limits/gmail")
    assert gone.status_code == 404
    assert "gmail" in gone.json()["detail"]
    assert (await http.get("/v1/limits/gmail")).json()["concurrency"] is None


@pytest.mark.parametrize(
    "body", [{}, {"rate": "fast"}, {"concurrency": -1}, {"concurrency": "x"}, {"rate": "0/s"}, {"burst": 1}]
)
async def test_a_limit_that_makes_no_sense_is_refused(http: httpx.AsyncClient, body: object) -> None:
    answer = await http.put("/v1/limits/gmail", json=body)

    assert 400 <= answer.status_code < 500
    assert answer.json()["code"].startswith("DS-")
    assert (await http.get("/v1/limits")).json()["items"] == []


@pytest.mark.parametrize("key", ["a%0Ab", "%0A", "gmail%0A", "gmail%0D%0A", "a%09b", "a%7Fb"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_a_key_with_control_characters_is_told_what_is_wrong_with_it(
    http: httpx.AsyncClient, method: str, key: str
) -> None:
    await http.put("/v1/limits/gmail", json={"concurrency": 5})
    answer = await http.request(
        method, f"/v1/limits/{key}", json={"concurrency": 1} if method == "PUT" else None
    )
    assert answer.status_code == 422
    assert answer.json()["code"] == "DS-120"
    assert answer.json()["detail"] == (
        "/path/key: It must not hold control characters, such as a line break or a tab"
    )
    assert (await http.get("/v1/limits/gmail")).json()["concurrency"] == 5


async def test_whoever_may_only_read_sets_nothing(app: App, http: httpx.AsyncClient) -> None:
    stack = app.client.stack
    _, key = await KeyRecords(stack.records, stack.clock).add("reader", ("read",), None)
    reader = {"Authorization": f"Bearer {key}"}

    assert (await http.get("/v1/limits", headers=reader)).status_code == 200
    refused = await http.put("/v1/limits/gmail", json={"concurrency": 1}, headers=reader)
    assert refused.status_code == 403
