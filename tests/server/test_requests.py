"""``/v1/executions/{id}/requests``: ask a workflow over HTTP, at once or in two steps."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from tests.waiting import come_about

KEY = {"Idempotency-Key": "once"}
QUOTES = """
let open = []
while (true) {
  const r = await Request.next("quote")
  if (r.payload == "keep") {
    open.push(r)
  } else if (r.payload == "flush") {
    for (const one of open) { Request.reply(one, "at last") }
    Request.reply(r, open.length)
  } else if (r.payload == "no") {
    Request.reject(r, "not today")
  } else if (r.payload == "end") {
    return "over"
  } else {
    Request.reply(r, {"price": r.payload * 2})
  }
}
"""


async def started(http: httpx.AsyncClient) -> str:
    body = {"name": "quotes", "kind": "script", "source": QUOTES}
    deployed = await http.post("/v1/definitions", json=body)
    assert deployed.status_code == 201, deployed.text
    return str((await http.post("/v1/executions", json={"workflow": "quotes"})).json()["id"])


async def ask(http: httpx.AsyncClient, execution: str, payload: Any, **options: Any) -> httpx.Response:
    query = {"wait": options.pop("wait", 10)}
    body = {"payload": payload, **{name: options.pop(name) for name in ("id",) if name in options}}
    path = f"/v1/executions/{execution}/requests/{options.pop('name', 'quote')}"
    return await http.post(path, json=body, params=query, **options)


async def test_a_request_is_answered_in_one_call(http: httpx.AsyncClient) -> None:
    execution = await started(http)
    answer = await ask(http, execution, 4, id="a/1")
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "id": "a/1", "name": "quote", "state": "answered", "value": {"price": 8}, "message": None,
    }  # fmt: skip
    assert answer.headers["Location"] == f"/v1/executions/{execution}/requests/a%2F1"
    assert (await http.get(answer.headers["Location"])).json() == answer.json()


async def test_a_request_without_an_answer_yet_says_where_it_will_be(http: httpx.AsyncClient) -> None:
    execution = await started(http)
    first = await ask(http, execution, "keep", wait=0, headers=KEY)
    assert (first.status_code, first.json()["id"]) == (202, "once")
    place = first.headers["Location"]
    waiting = asyncio.ensure_future(http.get(place, params={"seconds": 20}))
    listed = (await http.get(f"/v1/executions/{execution}/requests")).json()["items"]
    assert [(each["id"], each["name"]) for each in listed] == [("once", "quote")]

    flushed = await ask(http, execution, "flush")

    assert (flushed.status_code, flushed.json()["value"]) == (200, 1)
    assert (await waiting).json()["value"] == "at last"
    again = await ask(http, execution, "keep", headers=KEY)
    assert (again.status_code, again.json()["value"]) == (200, "at last")
    assert (await http.get(f"/v1/executions/{execution}/requests")).json() == {"items": []}


async def test_a_refused_request_has_its_reason(http: httpx.AsyncClient) -> None:
    execution = await started(http)
    answer = await ask(http, execution, "no")
    assert (answer.status_code, answer.json()["state"], answer.json()["message"]) == (
        200,
        "rejected",
        "not today",
    )


async def test_the_same_id_with_another_payload_or_name_is_refused(http: httpx.AsyncClient) -> None:
    execution = await started(http)
    assert (await ask(http, execution, 1, id="x")).status_code == 200
    assert (await ask(http, execution, 1, id="x")).json()["value"] == {"price": 2}
    for other in ({"payload": 2}, {"payload": 1, "name": "price"}):
        refused = await ask(http, execution, **other, id="x")
        assert (refused.status_code, refused.json()["code"]) == (409, "DS-161")
    both = await ask(http, execution, 1, id="y", headers=KEY)
    assert both.status_code == 422, both.text


async def test_an_ended_execution_answers_with_a_conflict(http: httpx.AsyncClient) -> None:
    execution = await started(http)
    waiting = asyncio.ensure_future(ask(http, execution, "keep", id="kept"))

    async def is_open() -> bool:
        return bool((await http.get(f"/v1/executions/{execution}/requests")).json()["items"])

    await come_about(is_open, "the request is received")
    ended = await ask(http, execution, "end")
    assert (ended.status_code, ended.json()["code"]) == (409, "DS-160")
    assert "ended (COMPLETED) before it answered request 'quote'" in ended.json()["detail"]
    assert (await waiting).status_code == 409
    late = await ask(http, execution, 1)
    assert (late.status_code, late.json()["code"]) == (409, "DS-160")
    kept = await http.get(f"/v1/executions/{execution}/requests/kept")
    assert (kept.status_code, kept.json()["state"], kept.json()["message"]) == (
        200,
        "unanswered",
        "COMPLETED",
    )


async def test_unknown_requests_and_executions_are_not_found(http: httpx.AsyncClient) -> None:
    execution = await started(http)
    for path in (f"{execution}/requests/none", "none/requests/none", "none/requests"):
        assert (await http.get(f"/v1/executions/{path}")).status_code == 404, path
    assert (await ask(http, "none", 1)).status_code == 404
