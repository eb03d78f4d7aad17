"""Lists of executions over HTTP: filters, text, and pages that survive what goes on meanwhile."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from dalsegno.app import App
from tests.server.test_executions import WAITS, deploy_script, ended

FAILS = 'workflow fails(inputs) {\n  throw "the card of " + inputs.who + " was declined"\n}\n'


async def listed(http: httpx.AsyncClient, **where: Any) -> list[str]:
    answer = await http.get("/v1/executions", params=where)
    assert answer.status_code == 200, answer.text
    return [each["id"] for each in answer.json()["items"]]


async def start(http: httpx.AsyncClient, workflow: str, **more: Any) -> str:
    answer = await http.post("/v1/executions", json={"workflow": workflow, **more})
    assert answer.status_code in (200, 201), answer.text
    return str(answer.json()["id"])


@pytest.fixture
async def runs(http: httpx.AsyncClient) -> dict[str, str]:
    """One that waits, one that failed, and the retry of that."""
    await deploy_script(http, WAITS)
    await deploy_script(http, FAILS)
    waiting = await start(http, "waits", tags={"customer": "c-17"}, idempotency_key="order-9")
    failed = await start(http, "fails", input={"who": "Ada"})
    await ended(http, failed)
    again = (await http.post(f"/v1/executions/{failed}/retry")).json()["id"]
    await ended(http, again)
    return {"waiting": waiting, "failed": failed, "again": again}


async def test_every_filter(http: httpx.AsyncClient, runs: dict[str, str]) -> None:
    waiting, failed, again = runs["waiting"], runs["failed"], runs["again"]
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    early = (datetime.now(UTC) - timedelta(hours=1)).isoformat()

    assert await listed(http) == [again, failed, waiting]
    assert await listed(http, state=["RUNNING", "FAILED"]) == [again, failed, waiting]
    assert await listed(http, kind="script", relation="retry") == [again]
    assert await listed(http, kind="graph") == []
    assert await listed(http, parent=failed) == [again]
    assert await listed(http, created_since=early, created_until=soon) == [again, failed, waiting]
    assert await listed(http, created_until=early) == []
    assert await listed(http, ended_since=early) == [again, failed]
    assert await listed(http, ended_until=early) == []
    assert await listed(http, tag=["customer=c-17"]) == [waiting]


async def test_text(http: httpx.AsyncClient, runs: dict[str, str]) -> None:
    waiting, failed, again = runs["waiting"], runs["failed"], runs["again"]

    assert await listed(http, text=failed[:14]) == [failed]
    assert await listed(http, text="order-9") == [waiting]
    assert await listed(http, text="c-17") == [waiting]
    assert await listed(http, text="WAIT") == [waiting]
    for _ in range(300):  # a store that indexes words does so after the ending
        if len(found := await listed(http, text="card declined")) == 2:
            break
        await asyncio.sleep(0.02)
    assert found == [again, failed]
    assert await listed(http, text="card refused") == []
    assert await listed(http, text=" ".join(f"w{number}" for number in range(50))) == []


async def test_pages_go_on_though_their_last_row_was_removed(
    http: httpx.AsyncClient, runs: dict[str, str]
) -> None:
    first = (await http.get("/v1/executions", params={"limit": 2})).json()
    assert [each["id"] for each in first["items"]] == [runs["again"], runs["failed"]]
    assert (await http.delete(f"/v1/executions/{runs['failed']}")).status_code == 204

    rest = (await http.get("/v1/executions", params={"limit": 2, "cursor": first["next"]})).json()

    assert [each["id"] for each in rest["items"]] == [runs["waiting"]]
    assert rest["next"] is None


async def test_wrong_filters_are_refused(http: httpx.AsyncClient) -> None:
    for where in (
        {"state": "DONE"},
        {"kind": "thing"},
        {"tag": "alone"},
        {"created_since": "yesterday"},
        {"text": ""},
        {"text": "x" * 201},
        {"tag": [f"t{number}=1" for number in range(21)]},
        {"cursor": "!"},
        {"cursor": "YQ"},
    ):
        answer = await http.get("/v1/executions", params=where)
        assert (answer.status_code, answer.json()["code"]) == (422, "DS-120"), where


async def test_only_ended_executions_are_removed(http: httpx.AsyncClient, runs: dict[str, str]) -> None:
    early = await http.delete(f"/v1/executions/{runs['waiting']}")
    assert (early.status_code, early.json()["code"]) == (409, "DS-160")
    assert "has not ended" in early.json()["detail"]
    assert (await http.delete("/v1/executions/nowhere")).status_code == 404
    assert (await http.delete(f"/v1/executions/{runs['again']}")).status_code == 204
    assert (await http.get(f"/v1/executions/{runs['again']}")).status_code == 404


async def test_what_is_swept_at_that_moment_is_removed_a_moment_later(
    http: httpx.AsyncClient, app: App, runs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = app.client.stack.archive
    remove, tries = archive.remove, 0

    async def held_by_the_sweep(executions: list[str]) -> list[str]:
        nonlocal tries
        tries += 1
        return await remove(executions) if tries == 3 else []

    monkeypatch.setattr(archive, "remove", held_by_the_sweep)
    assert (await http.delete(f"/v1/executions/{runs['again']}")).status_code == 204
    assert tries == 3
