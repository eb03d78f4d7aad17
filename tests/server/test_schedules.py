"""Schedules over HTTP: added, looked at, changed, stopped, triggered."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.server.test_definitions import GRAPH
from tests.server.test_executions import ended

NIGHTLY = {"name": "nightly", "timing": "0 2 * * *", "workflow": "sum", "input": {"n": 4}}


@pytest.fixture
async def nightly(http: httpx.AsyncClient) -> dict[str, Any]:
    await http.post("/v1/definitions", json=GRAPH)
    answer = await http.post("/v1/schedules", json=NIGHTLY)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_schedule_is_added_and_tells_its_next_times(
    http: httpx.AsyncClient, nightly: dict[str, Any]
) -> None:
    assert (nightly["cron"], nightly["workflow"], nightly["input"]) == ("0 2 * * *", "sum", {"n": 4})
    found = (await http.get("/v1/schedules/nightly?times=3")).json()
    assert len(found["next"]) == 3
    assert all(time.endswith("T02:00:00Z") for time in found["next"])


async def test_the_list_goes_on_from_its_cursor(http: httpx.AsyncClient, nightly: dict[str, Any]) -> None:
    await http.post("/v1/schedules", json={**NIGHTLY, "name": "another", "timing": "every 15m"})
    first = (await http.get("/v1/schedules?limit=1")).json()
    assert [each["name"] for each in first["items"]] == ["another"]
    assert first["items"][0]["every"] == 900
    rest = (await http.get("/v1/schedules", params={"limit": 1, "cursor": first["next"]})).json()
    assert ([each["name"] for each in rest["items"]], rest["next"]) == ([nightly["name"]], None)


async def test_a_taken_name_is_refused_unless_it_may_be_replaced(
    http: httpx.AsyncClient, nightly: dict[str, Any]
) -> None:
    refused = await http.post("/v1/schedules", json=NIGHTLY)
    assert (refused.status_code, refused.json()["code"]) == (409, "DS-160")
    changed = await http.post("/v1/schedules", json={**NIGHTLY, "timing": "@hourly", "replace": True})
    assert changed.json()["execution"] == nightly["execution"]


async def test_put_creates_and_changes(http: httpx.AsyncClient, nightly: dict[str, Any]) -> None:
    setting = {"timing": "0 3 * * *", "workflow": "sum", "input": {"n": 4}, "timezone": "Europe/Berlin"}
    changed = await http.put("/v1/schedules/nightly", json=setting)
    assert (changed.status_code, changed.json()["timezone"]) == (200, "Europe/Berlin")
    assert changed.json()["execution"] == nightly["execution"]
    made = await http.put("/v1/schedules/other", json=setting)
    assert (made.status_code, made.json()["name"]) == (201, "other")


async def test_a_paused_schedule_has_no_next_time_until_it_is_resumed(
    http: httpx.AsyncClient, nightly: dict[str, Any]
) -> None:
    paused = (await http.post("/v1/schedules/nightly/pause")).json()
    assert (paused["state"], paused["next"]) == ("PAUSED", [])
    resumed = (await http.post("/v1/schedules/nightly/resume")).json()
    assert (resumed["state"], resumed["next"][0]) == ("RUNNING", nightly["next"][0])


async def test_a_trigger_starts_the_workflow_now(http: httpx.AsyncClient, nightly: dict[str, Any]) -> None:
    answer = await http.post("/v1/schedules/nightly/trigger")
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/v1/executions/{answer.json()['id']}"
    done = await ended(http, answer.json()["id"])
    assert (done["state"], done["relation"], done["parent"]) == (
        "COMPLETED",
        "schedule",
        nightly["execution"],
    )


async def test_a_removed_schedule_is_not_found_any_more(
    http: httpx.AsyncClient, nightly: dict[str, Any]
) -> None:
    assert nightly["state"] == "RUNNING"
    assert (await http.delete("/v1/schedules/nightly")).status_code == 204
    for method, path in (("GET", ""), ("POST", "/pause"), ("POST", "/trigger"), ("DELETE", "")):
        answer = await http.request(method, f"/v1/schedules/nightly{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "DS-130"), (method, path)
    assert (await http.get("/v1/schedules")).json()["items"] == []


async def test_names_may_have_slashes(http: httpx.AsyncClient, nightly: dict[str, Any]) -> None:
    await http.post("/v1/schedules", json={**NIGHTLY, "name": "shop/daily"})
    assert (await http.get("/v1/schedules/shop%2Fdaily")).json()["name"] == "shop/daily"
    assert (await http.post("/v1/schedules/shop%2Fdaily/pause")).json()["state"] == "PAUSED"
    assert (await http.get(f"/v1/schedules/{nightly['name']}")).json()["state"] == "RUNNING"


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"timing": "0 25 * * *"}, "hour"),
    ({"timing": "every 0s"}, "too short"),
    ({"timezone": "Mars/Olympus"}, "Mars/Olympus"),
    ({"workflow": "summ"}, "did you mean 'sum'"),
    ({"start": "soon"}, "not a point in time"),
    ({"end": 1.0}, "no time is left"),
    ({"grace": "many"}, "grace"),
    ({"name": "a@b"}, "without '@'"),
    ({"nonsense": 1}, "nonsense"),
)


async def test_what_makes_no_sense_is_refused_in_a_sentence(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=GRAPH)
    for changed, said in REFUSED:
        answer = await http.post("/v1/schedules", json={**NIGHTLY, **changed})
        assert answer.status_code in (404, 422), answer.text
        assert said in answer.json()["detail"]
    assert (await http.get("/v1/schedules")).json()["items"] == []


async def test_an_interval_that_leaves_the_calendar_is_shown_as_far_as_it_goes(
    http: httpx.AsyncClient, nightly: dict[str, Any]
) -> None:
    await http.put("/v1/schedules/nightly", json={**_setting(nightly), "timing": "every 30000d"})
    answer = await http.get("/v1/schedules/nightly?times=100")
    assert answer.status_code == 200, answer.text
    assert 0 < len(answer.json()["next"]) <= 100


def _setting(found: dict[str, Any]) -> dict[str, Any]:
    return {"timing": found["cron"], "workflow": found["workflow"], "input": found["input"]}


async def test_what_is_shown_of_a_schedule_can_be_sent_back(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=ROUND_TRIP)
    for name, timing in (("cron", "0 2 * * *"), ("interval", "every 15m")):
        asked = {"timing": timing, "workflow": "told@1", "input": {"a": 1}, "tags": {"b": "c"}, "jitter": 5}
        made = await http.put(f"/v1/schedules/{name}", json={**asked, "start": "2030-01-31T09:00:00Z"})
        assert made.status_code == 201, made.text
        shown = (await http.get(f"/v1/schedules/{name}")).json()

        again = await http.put(f"/v1/schedules/{name}", json=shown)
        assert (again.status_code, again.json()) == (200, shown), again.text
        copied = await http.post("/v1/schedules", json={**shown, "name": f"{name} two"})
        assert copied.status_code == 201, copied.text
        own = ("name", "execution", "created_at")
        assert {**copied.json(), **{each: shown[each] for each in own}} == shown
    other = await http.put("/v1/schedules/elsewhere", json=shown)
    assert (other.status_code, "/body/name" in other.json()["detail"]) == (422, True)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({}, "/body/timing"),
        ({"timing": "@daily", "cron": "0 2 * * *"}, "/body/timing"),
        ({"cron": "0 2 * * *", "every": 5}, "/body/cron"),
        ({"timing": "@daily", "workflow": "told@1", "version": 2}, "/body/version"),
    ],
)
async def test_a_schedule_says_its_timing_once(
    http: httpx.AsyncClient, given: dict[str, object], place: str
) -> None:
    await http.post("/v1/definitions", json=ROUND_TRIP)
    refused = await http.put("/v1/schedules/n", json={"workflow": "told", **given})
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith(place)
    [finding] = refused.json()["findings"]
    assert finding["pointer"] == place
    assert refused.json()["detail"] == f"{place}: {finding['message']}"
    if place != "/body/version":
        assert "'0 2 * * *', '@daily', or an interval such as 'every 15m'" in refused.json()["detail"]


ROUND_TRIP = {"name": "told", "nodes": [{"id": "a", "type": "log", "parameters": {"message": "x"}}]}
