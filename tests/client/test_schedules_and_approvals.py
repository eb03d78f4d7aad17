"""Schedules and approvals over HTTP: what is asked, and what is made of the answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from dalsegno import Client, UsageError
from dalsegno.errors import Conflict
from dalsegno.schedules import Schedules

SCHEDULE: dict[str, Any] = {
    "name": "nightly",
    "execution": "e1",
    "state": "RUNNING",
    "workflow": "report",
    "version": "stable",
    "input": {"day": 1},
    "cron": "0 2 * * *",
    "timezone": "Europe/Berlin",
    "created_at": "2030-01-31T09:00:00Z",
    "next": ["2030-02-01T01:00:00Z"],
    "tags": {"a": "b"},
    "started": 3,
}
APPROVAL: dict[str, Any] = {
    "execution": "e1",
    "workflow": "expense",
    "node": "ask",
    "message": "May I?",
    "since": "2030-01-31T09:00:00Z",
    "indexes": [2],
}
Asked = list[tuple[str, str, Any]]


def wired(answer: Callable[[httpx.Request], httpx.Response]) -> tuple[Client, Asked]:
    asked: Asked = []

    def note(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        asked.append((request.method, request.url.raw_path.decode(), body))
        return answer(request)

    return Client("http://there:1", wire=httpx.MockTransport(note)), asked


def test_a_schedule_is_added_and_read_back() -> None:
    client, asked = wired(lambda _: httpx.Response(201, json=SCHEDULE))
    with client:
        view = client.schedules.add(
            "nightly",
            "0 2 * * *",
            "report@stable",
            input={"day": 1},
            timezone="Europe/Berlin",
            start=datetime(2030, 1, 31, tzinfo=UTC),
            replace=True,
        )
    method, path, body = asked[0]
    assert (method, path) == ("POST", "/v1/schedules")
    assert body["timing"] == "0 2 * * *"
    assert body["start"] == "2030-01-31T00:00:00+00:00"
    assert body["replace"] is True
    assert (view.name, view.spec.workflow, view.spec.version) == ("nightly", "report", "stable")
    assert bytes(view.spec.input) == b'{"day":1}'
    assert view.next == (datetime(2030, 2, 1, 1, tzinfo=UTC).timestamp(),)
    assert view.started == 3


def test_schedules_are_listed_page_after_page() -> None:
    pages = iter(({"items": [SCHEDULE], "next": "more"}, {"items": [{**SCHEDULE, "name": "other"}]}))
    client, asked = wired(lambda _: httpx.Response(200, json=next(pages)))
    with client:
        assert [view.name for view in client.schedules.list()] == ["nightly", "other"]
    assert asked[1][1] == "/v1/schedules?limit=500&cursor=more"


def test_schedules_are_steered_by_name() -> None:
    execution = {
        "id": "e9",
        "workflow": "report",
        "version": 1,
        "kind": "graph",
        "state": "RUNNING",
        "created_at": "2030-01-31T09:00:00Z",
    }
    client, asked = wired(lambda _: httpx.Response(200, json=execution))
    with client:
        client.schedules.pause("a/b")
        client.schedules.resume("a/b")
        client.schedules.remove("a/b")
        assert client.schedules.trigger("a/b").id == "e9"
    assert [(method, path) for method, path, _ in asked] == [
        ("POST", "/v1/schedules/a%2Fb/pause"),
        ("POST", "/v1/schedules/a%2Fb/resume"),
        ("DELETE", "/v1/schedules/a%2Fb"),
        ("POST", "/v1/schedules/a%2Fb/trigger"),
    ]


def test_a_wrong_option_is_told_before_anything_is_sent() -> None:
    client, asked = wired(lambda _: httpx.Response(500))
    with client, pytest.raises(UsageError, match="nonsense"):
        client.schedules.add("nightly", "0 2 * * *", "report", nonsense=1)  # type: ignore[call-arg]
    assert not asked


def test_both_kinds_of_schedules_have_the_same_calls() -> None:
    public = {name for name in dir(Schedules) if not name.startswith("_")}
    assert public == {name for name in dir(Client("http://there:1").schedules) if not name.startswith("_")}


def test_approvals_of_an_execution() -> None:
    client, asked = wired(lambda _: httpx.Response(200, json={"items": [APPROVAL]}))
    with client:
        (found,) = client.handle("e1").approvals()
    assert asked[0][1] == "/v1/executions/e1/approvals?limit=500"
    assert (found.node, found.message, found.indexes) == ("ask", "May I?", (2,))
    assert found.since == datetime(2030, 1, 31, 9, tzinfo=UTC).timestamp()


def test_a_decision_is_sent_once() -> None:
    body = {"status": 409, "code": "DS-160", "detail": "decided already", "title": "", "type": ""}
    client, asked = wired(lambda _: httpx.Response(409, json=body))
    with client, pytest.raises(Conflict, match="decided already"):
        client.handle("e1").decide("ask me", "approved", {"limit": 5}, by="Ann", index=2)
    assert asked == [
        (
            "POST",
            "/v1/executions/e1/approvals/ask%20me",
            {"decision": "approved", "data": {"limit": 5}, "by": "Ann", "index": [2]},
        )
    ]


def test_more_approvals_than_fit_in_a_page_are_asked_for_again() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        is_last = "cursor" in request.url.params
        count = int(request.url.params["limit"]) if not is_last else 1
        return httpx.Response(200, json={"items": [APPROVAL] * count, "next": None if is_last else "more"})

    client, asked = wired(answer)
    with client:
        found = client.host.call(client.client.pending_approvals(limit=600))
    assert len(found) == 501
    assert [path for _, path, _ in asked] == [
        "/v1/approvals?limit=500",
        "/v1/approvals?limit=100&cursor=more",
    ]
