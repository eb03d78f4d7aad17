"""One action for many executions: what is meant, what a dry run tells, and that twice is once."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from dalsegno.server.executions import bulk as bulk_module
from tests.server.test_executions import WAITS, deploy_script, ended
from tests.server.test_listing import listed, start

FAILS = 'workflow fails(inputs) {\n  throw "no luck"\n}\n'


async def bulk(http: httpx.AsyncClient, action: str, **more: Any) -> dict[str, Any]:
    answer = await http.post("/v1/executions/bulk", json={"action": action, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def start_waiting(http: httpx.AsyncClient, count: int, **more: Any) -> list[str]:
    await deploy_script(http, WAITS)
    return [await start(http, "waits", **more) for _ in range(count)]


async def start_failing(http: httpx.AsyncClient, count: int) -> list[str]:
    await deploy_script(http, FAILS)
    names = [await start(http, "fails") for _ in range(count)]
    for name in names:
        await ended(http, name)
    return names


async def test_a_dry_run_changes_nothing(http: httpx.AsyncClient) -> None:
    names = await start_waiting(http, 3)

    told = await bulk(http, "cancel", filter={"workflow": "waits"}, dry_run=True)

    assert (told["matched"], told["changed"], told["skipped"], told["dry_run"]) == (3, 3, 0, True)
    assert told["ids"] == names[::-1]
    assert await listed(http, state="RUNNING") == names[::-1]


async def test_pause_resume_cancel_delete(http: httpx.AsyncClient) -> None:
    names = await start_waiting(http, 3, tags={"env": "test"})
    others = [await start(http, "waits")]
    where = {"tags": {"env": "test"}}

    assert (await bulk(http, "pause", filter=where))["changed"] == 3
    assert await listed(http, state="PAUSED") == names[::-1]
    assert (await bulk(http, "pause", filter=where))["matched"] == 0
    assert (await bulk(http, "resume", filter=where))["changed"] == 3
    assert (await bulk(http, "cancel", filter=where, reason="a test"))["changed"] == 3
    for name in names:
        assert (await ended(http, name))["state"] == "CANCELLED"
    assert (await bulk(http, "delete", filter=where))["changed"] == 3
    assert await listed(http) == others


async def test_a_call_takes_its_limit_and_the_next_one_goes_on(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_module, "CHUNK", 2)
    names = await start_waiting(http, 7)
    seen: list[str] = []
    cursor = None
    calls = 0
    while calls == 0 or cursor is not None:
        told = await bulk(http, "pause", filter={"workflow": "waits"}, limit=3, cursor=cursor)
        seen += told["ids"]
        cursor = told["next"]
        calls += 1

    assert (seen, calls) == (names[::-1], 3)
    assert await listed(http, state="RUNNING") == []


async def test_deleting_goes_on_though_its_last_place_is_gone(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_module, "CHUNK", 2)
    await start_failing(http, 5)

    assert (await bulk(http, "delete", filter={"workflow": "fails"}))["changed"] == 5
    assert await listed(http) == []


async def test_retried_once_however_often_it_is_asked(http: httpx.AsyncClient) -> None:
    names = await start_failing(http, 2)

    first = await bulk(http, "retry", filter={"workflow": "fails"})
    retries = await listed(http, relation="retry")
    for name in retries:
        await ended(http, name)
    where = {"workflow": "fails", "created_until": await _after(http, names)}
    again = await bulk(http, "retry", filter=where)

    assert (first["changed"], len(retries)) == (2, 2)
    assert (again["matched"], again["changed"], again["skipped"]) == (2, 0, 2)
    assert {each["id"] for each in again["refusals"]} == set(names)
    assert "already retried" in again["refusals"][0]["detail"]


BROKEN = 'workflow orders(inputs) {\n  const paid = await Task.run("double", inputs.n)\n  return paid.to.street\n}\n'
MENDED = BROKEN.replace("paid.to.street", "paid")
REWRITTEN = BROKEN.replace("double", "fail")


async def test_one_call_retries_all_with_the_mended_code(http: httpx.AsyncClient) -> None:
    await deploy_script(http, BROKEN)
    names = [await start(http, "orders", input={"n": n}) for n in range(20)]
    for name in names:
        assert (await ended(http, name))["state"] == "FAILED"
    await deploy_script(http, REWRITTEN)
    refused = await bulk(http, "retry", filter={"workflow": "orders"}, version="latest")
    await deploy_script(http, MENDED)

    told = await bulk(http, "retry", filter={"workflow": "orders"}, version=3)

    assert (refused["changed"], refused["skipped"], refused["matched"]) == (0, 20, 20)
    assert "cannot continue in version 2 of 'orders'" in refused["refusals"][0]["detail"]
    assert told["changed"] == 20
    made = await listed(http, relation="retry")
    done = [await ended(http, name) for name in made]
    assert sorted(each["output"] for each in done) == [2 * n for n in range(20)]
    assert {each["version"] for each in done} == {3}
    ran = [(await http.get(f"/v1/executions/{name}/nodes")).json() for name in made]
    assert ran == [{}] * 20  # nothing was doubled a second time


async def test_a_retry_names_a_version_or_is_refused(http: httpx.AsyncClient) -> None:
    await deploy_script(http, BROKEN)
    name = await start(http, "orders", input={"n": 1})
    await ended(http, name)
    await deploy_script(http, REWRITTEN)
    path = f"/v1/executions/{name}/retry"

    refused = await http.post(path, json={"version": 2})
    missing = await http.post(path, json={"version": 9})
    key = {"Idempotency-Key": "k"}
    first = await http.post(path, json={}, headers=key)
    other = await http.post(path, json={"version": 2}, headers=key)

    assert (refused.status_code, missing.status_code) == (409, 404)
    assert "old, line 2" in refused.json()["detail"]
    assert (first.status_code, first.json()["version"]) == (201, 1)
    assert other.status_code == 409
    assert "version 1, not 2" in other.json()["detail"]


async def _after(http: httpx.AsyncClient, names: list[str]) -> str:
    """A moment after all of them were created."""
    moments = [(await http.get(f"/v1/executions/{name}")).json()["created_at"] for name in names]
    return (max(map(datetime.fromisoformat, moments)) + timedelta(microseconds=10)).isoformat()


async def test_an_empty_filter_needs_to_be_meant(http: httpx.AsyncClient) -> None:
    names = await start_waiting(http, 2)

    refused = await http.post("/v1/executions/bulk", json={"action": "cancel"})
    assert (refused.status_code, refused.json()["code"]) == (422, "DS-120")
    assert "'all': true" in refused.json()["detail"]
    assert await listed(http, state="RUNNING") == names[::-1]

    assert (await bulk(http, "cancel", all=True))["changed"] == 2


async def test_states_that_do_not_allow_an_action_are_not_meant(http: httpx.AsyncClient) -> None:
    await start_waiting(http, 1)

    assert (await bulk(http, "delete", filter={"states": ["RUNNING"]}))["matched"] == 0
    assert (await bulk(http, "resume", filter={"states": ["RUNNING", "PAUSED"]}))["matched"] == 0


async def test_a_second_bulk_cancel_lets_scripts_clean_up(http: httpx.AsyncClient) -> None:
    source = (
        'workflow tidy(inputs) {\n  try { await Signal.when("go") }\n'
        '  finally { await Signal.when("cleaned") }\n}\n'
    )
    await deploy_script(http, source)
    name = await start(http, "tidy")
    for _ in range(2):
        assert (await bulk(http, "cancel", filter={"workflow": "tidy"}))["changed"] == 1

    assert (await http.get(f"/v1/executions/{name}")).json()["state"] == "RUNNING"
    await http.post(f"/v1/executions/{name}/signals", json={"name": "cleaned"})
    assert (await ended(http, name))["state"] == "CANCELLED"
