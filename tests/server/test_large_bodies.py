"""Large bodies and large stored values pass through a server without being worked on in its event loop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from dalsegno.app import App
from dalsegno.lang.values import regex
from dalsegno.server.application import Roles, create_application
from tests.server.test_offload import watched, wide_graph

pytestmark = pytest.mark.parametrize("store_url", ["memory"], indirect=True)
JSON = {"Content-Type": "application/json"}
MANY = b"[" + b",".join([b'{"a":[]}'] * 150_000) + b"]"
"""A megabyte that becomes 300,000 objects."""
MANY_VALUE = [{"a": []}] * 150_000


@pytest.fixture
async def server(app: App) -> AsyncIterator[FastAPI]:
    """Without a worker: what that does is not looked at here."""

    @app.node("own-type")
    async def own(context: object, parameters: object) -> None:
        del context, parameters

    class Sized(BaseModel, extra="forbid"):
        size: int

    @app.node("sized", parameters=Sized)
    async def sized(context: object, parameters: Sized) -> None:
        del context, parameters

    application = create_application(app, roles=Roles(worker=False, scheduler=False))
    async with application.router.lifespan_context(application):
        yield application


@pytest.fixture
async def http(server: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(server, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700", timeout=60) as client:
        await client.post("/v1/definitions", json=wide_graph(1, "small"))
        yield client


async def test_a_large_input_is_not_read_in_the_loop(http: httpx.AsyncClient) -> None:
    body = b'{"workflow": "small", "idempotency_key": "k", "input": %b}' % MANY
    wider, longer = body.replace(b",{", b", {"), body.replace(b"[{", b"[1,{", 1)
    async with watched() as lag:
        made = await http.post("/v1/executions", content=body, headers=JSON)
        again = await http.post("/v1/executions", content=wider, headers=JSON)
        other = await http.post("/v1/executions", content=longer, headers=JSON)
        place = made.headers["Location"]
        shown = [await http.get(place + path) for path in ("", "/events", "/results", "/inspection")]
    assert (made.status_code, again.status_code, other.status_code) == (201, 200, 409), other.text
    assert lag.is_short, vars(lag)
    assert made.json()["input"] == shown[0].json()["input"] == MANY_VALUE
    assert shown[2].json()["$trigger"] == MANY_VALUE
    whole = await http.get(place, headers={"Accept-Encoding": "identity"})
    assert int(whole.headers["Content-Length"]) == len(whole.content) > len(MANY)
    packed = await http.get(place, headers={"Accept-Encoding": "gzip"})
    assert (packed.headers["Content-Encoding"], packed.json()) == ("gzip", whole.json())
    assert [each.status_code for each in shown] == [200] * 4


async def test_a_large_signal_is_not_read_in_the_loop(http: httpx.AsyncClient) -> None:
    wait = {
        "name": "waits",
        "nodes": [{"id": "w", "type": "wait", "parameters": {"resume": "signal", "signal": "s"}}],
    }
    made = await http.post("/v1/executions", json={"definition": wait})
    assert made.status_code == 201, made.text
    place = made.headers["Location"]
    body = b'{"name": "s", "id": "one", "payload": %b}' % MANY
    async with watched() as lag:
        sent = [
            (await http.post(f"{place}/signals", content=each, headers=JSON)).status_code
            for each in (body, body, body.replace(b"[{", b"[2,{", 1))
        ]
    assert sent == [202, 202, 409]
    assert lag.is_short, vars(lag)


async def test_a_large_inline_definition_is_not_read_in_the_loop(http: httpx.AsyncClient) -> None:
    body = msgspec.json.encode({"definition": wide_graph(8_000, "inline"), "pending": True})
    submitted = msgspec.json.encode({**wide_graph(8_000, "other"), "input": {"a": 1}})
    async with watched() as lag:
        made = await http.post("/v1/executions", content=body, headers=JSON)
        also = await http.post("/v1/workflows", content=submitted, headers=JSON)
    assert made.status_code == also.status_code == 201, made.text + also.text
    assert lag.is_short, vars(lag)
    shown = await http.get(f"/v1/executions/{also.json()['execution_id']}")
    assert (shown.json()["workflow"], shown.json()["input"]) == ("other", {"a": 1})


@pytest.mark.parametrize("short", [True, False])
async def test_refusals_are_the_same_for_short_and_long_bodies(http: httpx.AsyncClient, short: bool) -> None:
    filler = b" " * (0 if short else 200_000)

    async def refused(body: bytes) -> tuple[int, str, str]:
        reply = await http.post("/v1/executions", content=filler + body, headers=JSON)
        found: dict[str, Any] = reply.json()
        return reply.status_code, found["detail"], found["errors"][0]["pointer"] if found["errors"] else ""

    place = len(filler) + 23
    assert await refused(b'{"workflow": "small", }') == (
        400,
        f"the body is not valid JSON: Expecting property name enclosed in double quotes (line 1, column {place:,})",
        "/body",
    )
    assert await refused(b'{"workflow": "small", "input": {"a": [NaN]}}') == (
        422,
        "the input is not JSON: $.a[0] is nan, which JSON cannot represent",
        "",
    )
    deep = b'{"workflow": "small", "input": ' + b"[" * 201 + b"]" * 201 + b"}"
    assert await refused(deep) == (422, "the input is nested more than 200 levels deep", "")
    too_deep = b'{"workflow": "small", "input": ' + b"[" * 50_000
    assert await refused(too_deep) == (422, "the body is nested more than 200 levels deep", "")
    assert (await refused(b'{"workflow": "small", "tgas": {}}'))[::2] == (422, "/body/tgas")
    assert (await refused(b'{"workflow": "small", "definition": [1]}'))[0] == 422
    assert (await refused(b"[1]"))[0] == 422


async def test_a_large_key_is_evaluated_in_a_process(http: httpx.AsyncClient, server: FastAPI) -> None:
    keyed = wide_graph(1, "keyed") | {"concurrency": {"key": "$trigger.customer", "limit": 1}}
    assert (await http.post("/v1/definitions", json=keyed)).status_code == 201
    async with watched() as lag:
        body = b'{"workflow": "keyed", "input": {"customer": "ann", "rest": %b}}' % MANY
        made = await http.post("/v1/executions", content=body, headers=JSON)
        body = b'{"workflow": "keyed", "input": {"customer": null, "rest": %b}}' % MANY
        refused = await http.post("/v1/executions", content=body, headers=JSON)
    assert made.status_code == 201, made.text
    assert refused.status_code == 422
    assert "must be a text or a number" in refused.json()["detail"]
    assert lag.is_short, vars(lag)
    inspection = await server.state.services.client.stack.ledger.inspect(made.json()["id"])
    assert [token.limit_key for token in inspection.tokens] == ["ann"]


async def test_an_approval_of_a_large_graph_is_not_worked_on_in_the_loop(
    http: httpx.AsyncClient, server: FastAPI
) -> None:
    graph = wide_graph(8_000, "approved")
    graph["nodes"].append({"id": "s", "type": "script", "parameters": {"source": "return 1"}})
    posted = await http.post("/v1/definitions", content=json.dumps(graph), headers=JSON)
    assert posted.status_code == 201, posted.text
    client = server.state.services.client
    async with watched() as lag:
        await client.withdraw_approval(posted.json()["hash"])
        await client.approve_definition(posted.json()["hash"], "ann")
    assert lag.is_short, vars(lag)
    part = await client.stack.archive.definition("approved/s")
    assert (await client.definition_approvals.of(part.hash)).by == "ann"


async def test_graphs_with_own_node_types_are_checked_in_a_process(
    http: httpx.AsyncClient, server: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    offload = server.state.services.client.offload
    in_thread = []
    small = offload.small
    monkeypatch.setattr(offload, "small", lambda work, *given: in_thread.append(work) or small(work, *given))
    own = wide_graph(2_000, "own")
    own["nodes"][7]["type"] = "own-type"
    own["nodes"][8] |= {"type": "sized", "parameters": {"size": 5}}
    assert (await http.post("/v1/definitions", json=own)).status_code == 201
    assert [work.__name__ for work in in_thread] == ["_checked"]
    assert offload.processes == 1


@pytest.mark.parametrize("nodes", [2, 1_000], ids=["thread", "process"])
async def test_parameters_of_own_node_types_are_checked_where_their_code_is(
    http: httpx.AsyncClient, nodes: int
) -> None:
    own = wide_graph(nodes, "own")
    own["nodes"][0] |= {"type": "sized", "parameters": {"size": "much"}}
    own["nodes"][1] |= {"type": "sized", "parameters": {"sise": 1}}
    refused = await http.post("/v1/definitions", json=own)
    assert refused.status_code == 422
    places = [(each["pointer"], each["rule"]) for each in refused.json()["findings"]]
    assert ("/nodes/0/parameters/size", "bad-parameter") in places
    assert any(pointer.startswith("/nodes/1/parameters") for pointer, _ in places)


@pytest.mark.parametrize("kind", ["graph", "form", "script"])
async def test_costly_patterns_are_not_compiled_in_a_thread(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Other threads, and with them the loop, stand still meanwhile."""

    def refuse(pattern: str, options: object) -> None:
        raise AssertionError(f"{pattern} is compiled in the process of the loop")

    monkeypatch.setattr(regex.re2, "compile", refuse)
    schema = {"patternProperties": {rf"^\pL{{{20 - number}}}$": {} for number in range(5)}}
    node: dict[str, Any] = {"id": "a", "type": "approval", "parameters": {"form": schema}}
    if kind == "script":
        source = f"```\ninput_schema: {json.dumps(schema)}\n```\nworkflow costly(inputs) {{\n  return 1\n}}\n"
        body = {"source": source, "kind": "script"}
    elif kind == "form":
        body = {"name": "costly", "nodes": [node]}
    else:
        body = {"name": "costly", "nodes": [node | {"parameters": {}}], "input_schema": schema}
    checked = await http.post("/v1/definitions/validate", json=body)
    assert checked.json()["valid"], checked.text
    assert (await http.post("/v1/definitions", json=body)).status_code == 201
    if kind != "form":
        started = await http.post("/v1/executions", json={"workflow": "costly", "input": {"Ann": 1}})
        assert started.status_code == 201, started.text


async def test_a_large_delivery_is_not_read_in_the_loop(http: httpx.AsyncClient) -> None:
    unsigned = {"path": "big", "workflow": "small", "signature": {"style": "none"}, "body_bytes": 4_000_000}
    made = await http.put("/v1/webhooks/big", json={**unsigned, "delivery_field": "head.id"})
    assert made.status_code == 201, made.text
    body = b'{"head": {"id": "d1"}, "rest": %b}' % MANY
    async with watched() as lag:
        taken = await http.post("/v1/hooks/big", content=body, headers=JSON)
        again = await http.post("/v1/hooks/big", content=body, headers=JSON)
        refused = await http.post("/v1/hooks/big", content=body + b"x", headers=JSON)
    assert lag.is_short, vars(lag)
    assert (taken.status_code, again.json()["repeated"], refused.status_code) == (202, True, 400)
    assert "not valid JSON: JSON is malformed" in refused.json()["detail"]
    shown = await http.get(f"/v1/executions/{taken.json()['execution']}")
    assert shown.json()["input"]["body"] == {"head": {"id": "d1"}, "rest": MANY_VALUE}


async def test_fields_of_a_large_definition_are_not_read_in_the_loop(http: httpx.AsyncClient) -> None:
    text = (
        b'{"source": "name: texts\\nnodes: [{id: a, type: log, parameters: {message: x}}]", "nosuch": %b}'
        % MANY
    )
    wrong = b'{"document": %b, "name": "n"}' % MANY
    async with watched() as lag:
        replies = [
            await http.post("/v1/definitions", content=body, headers=JSON)
            for body in (text, wrong, MANY, text + b"x")
        ]
    assert lag.is_short, vars(lag)
    assert [reply.status_code for reply in replies] == [422, 422, 422, 400]
    details = [reply.json()["detail"] for reply in replies]
    assert details[0].startswith("/body/nosuch: There is no field of this name")
    assert details[1] == "/body/document: a graph document is an object"
    assert details[2].startswith("/body: send an object")
    assert details[3].startswith("the body is not valid JSON: JSON is malformed")


async def test_many_findings_are_not_worked_on_in_the_loop(http: httpx.AsyncClient) -> None:
    graph = wide_graph(8_000, "wrong")
    for node in graph["nodes"]:
        node["type"] = "nosuch"
    async with watched() as lag:
        found = await http.post("/v1/definitions/validate", content=json.dumps(graph), headers=JSON)
        refused = await http.post("/v1/definitions", content=json.dumps(graph), headers=JSON)
    assert lag.is_short, vars(lag)
    assert found.json()["valid"] is False
    assert len(found.json()["findings"]) == 8_000
    first = {"pointer": "/nodes/0/type", "rule": "unknown-type", "line": None, "column": None}
    assert found.json()["findings"][0].items() >= first.items()
    assert (len(refused.json()["errors"]), refused.json()["omitted"]) == (100, 7_900)


async def test_a_field_beyond_64_bits_is_refused_and_the_process_goes_on(http: httpx.AsyncClient) -> None:
    body = b'{"workflow": "small", "version": %d, "input": "%b"}' % (10**30, b"a" * 200_000)
    refused = await http.post("/v1/executions", content=body, headers=JSON)
    assert refused.status_code == 422, refused.text
    assert "more than 64 bits" in refused.text


@pytest.mark.parametrize("size", [10, 100_000, 1_200_000])
async def test_numbers_that_nothing_can_hold_are_refused(http: httpx.AsyncClient, size: int) -> None:
    """In bodies that are read here, in parts, and in a process."""
    number = b"1" * 5_000
    for path in ("/v1/definitions/validate", "/v1/definitions"):
        body = b'{"source": "%b", "name": %b, "alias": %b}' % (b"x" * size, number, number)
        answer = await http.post(path, content=body, headers=JSON)
        assert (answer.status_code, answer.headers["Content-Type"]) == (422, "application/problem+json")
