"""Approvals over HTTP: listed, decided, and links that decide once."""

from __future__ import annotations

import asyncio
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from dalsegno.app import App
from dalsegno.server.approvals.links import KIND
from tests.server.test_executions import ended

FORM = {
    "type": "object",
    "required": ["amount"],
    "properties": {
        "amount": {"type": "number", "maximum": 100, "description": "In EUR"},
        "way": {"enum": ["card", "bank"]},
        "urgent": {"type": "boolean"},
        "note": {"type": "string", "maxLength": 1000},
    },
}
EVIL = "<script>alert('x')</script>"


def graph(form: Any = None, message: str = "Refund {{ $trigger.amount }} EUR?") -> dict[str, Any]:
    parameters = {"message": message, "approvers": ["ann"], "form": form}
    return {"name": "refund", "nodes": [{"id": "gate", "type": "approval", "parameters": parameters}]}


async def asked(
    http: httpx.AsyncClient, definition: dict[str, Any], given: Any = None, count: int = 1
) -> str:
    body = {"definition": definition, "input": given or {"amount": 80}}
    execution: str = (await http.post("/v1/executions", json=body)).json()["id"]
    for _ in range(500):
        if len((await http.get(f"/v1/executions/{execution}/approvals")).json()["items"]) == count:
            return execution
        await asyncio.sleep(0.01)
    raise AssertionError("nothing was asked")


async def link_for(http: httpx.AsyncClient, execution: str, **more: Any) -> str:
    answer = await http.post("/v1/approvals/links", json={"execution": execution, "node": "gate", **more})
    assert answer.status_code == 201, answer.text
    url: str = answer.json()["url"]
    return url


def filled(url: str, decision: str, **fields: str) -> dict[str, str]:
    return {"token": url.rpartition("/")[2], "decision": decision, **fields}


class Names(HTMLParser):
    """Every control of a page, and whether everything on it comes from the server itself."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.labels: set[str] = set()
        self.ids: set[str] = set()
        self.outside: list[str] = []
        self.scripts = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.scripts += tag == "script" or any(name.startswith("on") for name in found)
        if tag in ("input", "select", "textarea") and found.get("type") != "hidden":
            self.names.append(found.get("name") or "")
            self.ids.add(found.get("id") or "")
        if tag == "label":
            self.labels.add(found.get("for") or "")
        self.outside += [v for k, v in attrs if k in ("src", "href") and v and not v.startswith("/v1/")]


async def test_what_is_asked_is_listed_and_decided(http: httpx.AsyncClient) -> None:
    execution = await asked(http, graph(FORM))
    (found,) = (await http.get("/v1/approvals?workflow=refund")).json()["items"]
    assert (found["execution"], found["node"], found["message"]) == (execution, "gate", "Refund 80 EUR?")
    path = f"/v1/executions/{execution}/approvals/gate"
    wrong = await http.post(path, json={"decision": "approved", "data": {"amount": 500}})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "DS-120")
    right = {"decision": "approved", "data": {"amount": 80}, "by": "ann"}
    assert (await http.post(path, json=right)).json()["by"] == "ann"
    assert (await http.post(path, json=right)).status_code == 409
    assert (await ended(http, execution))["output"] == right
    assert (await http.get("/v1/approvals")).json()["items"] == []


async def test_the_list_comes_in_pages_that_leave_nothing_out(http: httpx.AsyncClient) -> None:
    asks = {"id": "gate", "type": "approval", "parameters": {"message": "{{ $item }}"}}
    split = {"id": "s", "type": "split", "parameters": {"input_array": [1, 2, 3]}}
    edges = [{"src": "s", "dst": "gate"}]
    executions = [
        await asked(http, {"name": "refund", "nodes": [split, asks], "edges": edges}, count=3) for _ in "ab"
    ]
    seen: list[tuple[str, list[int]]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = (await http.get(f"/v1/approvals?limit=2{cursor and '&cursor='}{cursor}")).json()
        assert len(page["items"]) == 2
        seen += [(each["execution"], each["indexes"]) for each in page["items"]]
        cursor = page["next"]
    assert len(seen) == 6
    assert sorted(seen) == sorted((each, [index]) for each in executions for index in range(3))
    wrong = await http.get("/v1/approvals?cursor=bm90aGluZw")
    assert (wrong.status_code, "'cursor'" in wrong.json()["detail"]) == (422, True)


async def test_the_questions_of_one_execution_come_in_pages(http: httpx.AsyncClient) -> None:
    asks = {"id": "gate", "type": "approval", "parameters": {"message": "May I?"}}
    split = {"id": "s", "type": "split", "parameters": {"input_array": [1, 2, 3, 4, 5]}}
    edges = [{"src": "s", "dst": "gate"}]
    execution = await asked(http, {"name": "refund", "nodes": [split, asks], "edges": edges}, count=5)
    other = await asked(http, graph())
    path = f"/v1/executions/{execution}/approvals"
    whole = (await http.get(path)).json()
    assert (len(whole["items"]), whole["next"]) == (5, None)

    seen: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        page = (await http.get(f"{path}?limit=2{cursor and '&cursor='}{cursor}")).json()
        seen.append(page["items"])
        cursor = page["next"]
        if cursor is not None and len(seen) == 1:  # what is decided meanwhile moves nobody
            answer = {"decision": "approved", "index": page["items"][0]["indexes"]}
            assert (await http.post(f"{path}/gate", json=answer)).status_code == 200
            elsewhere = await http.get(f"/v1/executions/{other}/approvals?cursor={cursor}")
            assert elsewhere.status_code == 422
    assert [len(each) for each in seen] == [2, 2, 1]
    assert [each for page in seen for each in page] == whole["items"]


async def test_a_page_goes_on_though_the_execution_where_it_ended_is_gone(http: httpx.AsyncClient) -> None:
    older, newer = [await asked(http, graph()) for _ in "ab"]
    first = (await http.get("/v1/approvals?limit=1")).json()
    assert [each["execution"] for each in first["items"]] == [newer]
    await http.post(f"/v1/executions/{newer}/cancel")
    await ended(http, newer)

    second = (await http.get(f"/v1/approvals?limit=1&cursor={first['next']}")).json()
    assert ([each["execution"] for each in second["items"]], second["next"]) == ([older], None)


async def test_a_link_shows_a_page_and_decides_once(http: httpx.AsyncClient, app: App) -> None:
    execution = await asked(http, graph(FORM))
    url = await link_for(http, execution, by="ann")
    for _ in range(3):  # mail scanners open every link
        page = await http.get(url)
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "Refund 80 EUR?" in page.text
    seen = Names(page.text)
    assert seen.names == ["field:amount", "field:way", "field:urgent", "field:note", "comment"]
    assert (seen.ids - seen.labels, seen.outside, seen.scripts) == (set(), [], 0)
    assert (await http.get("/v1/approvals/links/approval.css")).headers["content-type"].startswith("text/css")
    fields = {"field:amount": "42.5", "field:way": "bank", "field:urgent": "yes", "field:note": "a\r\nb"}
    done = await http.post(url, data=filled(url, "approved", by="mallory", **fields))
    assert (done.status_code, "Approved" in done.text) == (200, True), done.text
    output = (await ended(http, execution))["output"]
    assert output == {
        "decision": "approved",
        "data": {"amount": 42.5, "way": "bank", "urgent": True, "note": "a\nb"},
        "by": "ann",
    }
    for again in (await http.get(url), await http.post(url, data=filled(url, "rejected"))):
        assert (again.status_code, "This has been decided" in again.text) == (410, True)
    stored = repr(await app.client.stack.records.page(KIND))
    assert url.rpartition("/")[2] not in stored


async def test_what_does_not_fit_is_shown_again_with_what_was_written(http: httpx.AsyncClient) -> None:
    execution = await asked(http, graph(FORM))
    url = await link_for(http, execution)
    for amount, said in (("500", "greater than the maximum"), ("many", "is not a number"), ("", "amount")):
        page = await http.post(url, data=filled(url, "approved", **{"field:amount": amount, "by": "B<o"}))
        assert (page.status_code, said in page.text) == (422, True), page.text
        assert 'value="B&lt;o"' in page.text
    rejected = await http.post(url, data=filled(url, "rejected", **{"field:amount": "500", "by": "Bo"}))
    assert rejected.status_code == 200
    assert (await ended(http, execution))["output"] == {"decision": "rejected", "data": None, "by": "Bo"}


async def test_there_is_room_for_a_comment(http: httpx.AsyncClient) -> None:
    execution = await asked(http, graph())
    url = await link_for(http, execution)
    await http.post(url, data=filled(url, "rejected", comment="too much", by="Bo"))
    assert (await ended(http, execution))["output"] == {
        "decision": "rejected",
        "data": None,
        "by": "Bo",
        "comment": "too much",
    }


async def test_forged_and_expired_links_change_nothing(http: httpx.AsyncClient) -> None:
    execution = await asked(http, graph())
    url = await link_for(http, execution, expires=0.05)
    await asyncio.sleep(0.1)
    for expired in (await http.get(url), await http.post(url, data=filled(url, "approved"))):
        assert (expired.status_code, "has expired" in expired.text) == (410, True)
    forged = url[:-3] + "AAA"
    for unknown in (await http.get(forged), await http.post(forged, data=filled(forged, "approved"))):
        assert (unknown.status_code, "not valid" in unknown.text) == (404, True)
    other = await link_for(http, execution)
    for body in ({"decision": "approved"}, {"token": "x", "decision": "approved"}):
        refused = await http.post(other, data=body)
        assert (refused.status_code, "not complete" in refused.text) == (400, True)
    assert (await http.post(other, data=filled(other, "maybe"))).status_code == 422
    assert len((await http.get("/v1/approvals")).json()["items"]) == 1


async def test_of_two_links_and_many_clicks_one_decides(http: httpx.AsyncClient) -> None:
    execution = await asked(http, graph())
    urls = [await link_for(http, execution), await link_for(http, execution)]
    answers = await asyncio.gather(
        *(http.post(url, data=filled(url, "approved")) for url in (*urls, *urls, *urls))
    )
    codes = sorted(answer.status_code for answer in answers)
    assert codes[0] == 200
    assert set(codes[1:]) <= {409, 410}
    assert (await ended(http, execution))["state"] == "COMPLETED"
    assert {(await http.get(url)).status_code for url in urls} == {409, 410}


async def test_a_link_never_answers_another_question_of_the_same_node(http: httpx.AsyncClient) -> None:
    definition = {
        "name": "twice",
        "nodes": [
            {"id": "each", "type": "split", "parameters": {"input_array": "$trigger.items"}},
            {"id": "gate", "type": "approval", "parameters": {"message": "{{ $item }}?"}},
            {"id": "all", "type": "aggregator"},
        ],
        "edges": [{"src": "each", "dst": "gate"}, {"src": "gate", "dst": "all"}],
    }
    execution = await asked(http, definition, {"items": ["a", "b"]}, 2)
    url = await link_for(http, execution, index=[0])
    await http.post(f"/v1/executions/{execution}/approvals/gate", json={"decision": "approved", "index": [0]})
    late = await http.post(url, data=filled(url, "approved"))
    assert late.status_code == 409
    left = (await http.get(f"/v1/executions/{execution}/approvals")).json()["items"]
    assert [each["indexes"] for each in left] == [[1]]


@pytest.mark.parametrize("where", ["message", "input", "title", "name"])
async def test_what_comes_from_a_workflow_is_escaped(http: httpx.AsyncClient, where: str) -> None:
    form = {"type": "object", "properties": {EVIL: {"type": "string", "title": EVIL, "enum": [EVIL]}}}
    definition = graph(form if where in ("title", "name") else None, EVIL if where == "message" else "?")
    execution = await asked(http, definition, {"x": EVIL})
    page = await http.get(await link_for(http, execution))
    assert EVIL not in page.text
    assert "&lt;script&gt;" in page.text
    assert Names(page.text).scripts == 0


async def test_links_for_nothing_are_refused(http: httpx.AsyncClient) -> None:
    execution = await asked(http, graph())
    for changed, status in (
        ({"node": "other"}, 409),
        ({"execution": "0" * 32}, 404),
        ({"expires": "soon"}, 422),
        ({"expires": 0}, 422),
        ({"index": [7]}, 409),
    ):
        body = {"execution": execution, "node": "gate", **changed}
        assert (await http.post("/v1/approvals/links", json=body)).status_code == status, changed
