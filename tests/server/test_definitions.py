"""Definitions over HTTP: validate, deploy, versions, aliases, differences."""

from __future__ import annotations

from typing import Any

import httpx

GRAPH: dict[str, Any] = {
    "name": "sum",
    "nodes": [
        {
            "id": "begin",
            "type": "edit",
            "parameters": {"assignments": [{"name": "n", "value": "{{ input.n }}"}]},
        },
        {"id": "twice", "type": "task", "parameters": {"task": "double", "input": "{{ $begin.n }}"}},
    ],
    "edges": [{"id": "e1", "src": "begin", "dst": "twice"}],
}
SCRIPT = 'workflow twice(inputs) {\n  return await Task.run("double", inputs.n)\n}\n'


async def test_a_graph_is_deployed_once_however_often_it_is_sent(http: httpx.AsyncClient) -> None:
    first = await http.post("/v1/definitions", json=GRAPH)
    again = await http.post("/v1/definitions", json={"document": GRAPH})
    assert (first.status_code, again.status_code) == (201, 200)
    assert (first.json()["status"], again.json()["status"]) == ("new", "unchanged")
    assert first.json()["version"] == again.json()["version"] == 1


async def test_a_script_and_yaml_come_as_bare_bodies(http: httpx.AsyncClient) -> None:
    script = await http.post(
        "/v1/definitions", content=SCRIPT, headers={"content-type": "application/vnd.dalsegno.flow"}
    )
    assert script.json()["kind"] == "script"
    text = "name: y\nnodes:\n- {id: say, type: log, parameters: {message: hi}}\n"
    graph = await http.post(
        "/v1/definitions",
        content=text,
        headers={"content-type": "application/yaml"},
        params={"alias": "stable"},
    )
    assert graph.json()["kind"] == "graph"
    assert (await http.get("/v1/definitions/y", params={"version": "stable"})).json()["aliases"] == {
        "stable": 1
    }


async def test_validation_tells_every_problem_and_stores_nothing(http: httpx.AsyncClient) -> None:
    broken = {
        **GRAPH,
        "edges": [{"id": "a", "src": "begin", "dst": "nowhere"}, {"id": "b", "src": "x", "dst": "twice"}],
    }
    found = (await http.post("/v1/definitions/validate", json=broken)).json()
    assert not found["valid"]
    assert {"/edges/0/dst", "/edges/1/src"} <= {each["pointer"] for each in found["findings"]}
    assert (await http.get("/v1/definitions")).json() == {"items": [], "next": None}


async def test_a_broken_script_is_a_problem_document_with_lines(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/definitions", json={"source": "workflow x( {", "kind": "script"})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["errors"][0]["line"] == 1


async def test_versions_differ_and_aliases_name_them(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=GRAPH)
    changed = {**GRAPH, "nodes": [GRAPH["nodes"][0], {**GRAPH["nodes"][1], "timeout": "5s"}]}
    await http.post("/v1/definitions", json=changed)
    await http.put("/v1/definitions/sum/aliases/stable", json={"version": 1})
    versions = (await http.get("/v1/definitions/sum/versions")).json()
    assert [(each["version"], each["current"], each["aliases"]) for each in versions] == [
        (2, True, []),
        (1, False, ["stable"]),
    ]
    difference = (await http.get("/v1/definitions/sum/diff", params={"before": "stable"})).json()
    assert (difference["before"], difference["after"], difference["changed"]) == (1, 2, True)
    assert difference["changes"]["nodes"][0]["id"] == "twice"
    assert (await http.delete("/v1/definitions/sum/aliases/stable")).status_code == 204
    assert (await http.delete("/v1/definitions/sum/aliases/stable")).status_code == 404


async def test_pages_of_versions_follow_each_other(http: httpx.AsyncClient) -> None:
    for seconds in range(1, 6):
        changed = {**GRAPH, "nodes": [GRAPH["nodes"][0], {**GRAPH["nodes"][1], "timeout": f"{seconds}s"}]}
        await http.post("/v1/definitions", json=changed)
    first = (await http.get("/v1/definitions/sum/versions?limit=2")).json()
    second = (await http.get("/v1/definitions/sum/versions?limit=2&before=4")).json()
    assert [[each["version"] for each in page] for page in (first, second)] == [[5, 4], [3, 2]]
    again = await http.post("/v1/definitions", json=GRAPH)
    assert (again.json()["status"], again.json()["previous"]) == ("new", 5)
    again = await http.post("/v1/definitions", json=changed)
    assert (again.json()["status"], again.json()["previous"]) == ("current again", 6)


async def test_pages_of_definitions_follow_each_other(http: httpx.AsyncClient) -> None:
    for name in "abcde":
        await http.post("/v1/definitions", json={**GRAPH, "name": name})
    seen, cursor = [], None
    while True:
        page = (
            await http.get("/v1/definitions", params={"limit": 2, **({"cursor": cursor} if cursor else {})})
        ).json()
        seen += [each["name"] for each in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == list("abcde")


async def test_a_line_break_at_the_end_of_a_path_names_something_else(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=GRAPH)
    for method, path in (
        ("DELETE", "/v1/definitions/sum%0A"),
        ("GET", "/v1/definitions/sum%0A"),
        ("GET", "/v1/schedules/nightly%0A"),
    ):
        answer = await http.request(method, path)
        assert answer.status_code == 404
        assert answer.json()["code"] == "DS-130"
    assert (await http.get("/v1/definitions/sum")).status_code == 200


async def test_unknown_things_are_problem_documents(http: httpx.AsyncClient) -> None:
    for answer in (
        await http.get("/v1/definitions/nothing"),
        await http.get("/v1/nothing"),
        await http.get("/v1/executions/nothing"),
    ):
        assert answer.status_code == 404
        assert answer.json()["code"] == "DS-130"
        assert answer.headers["content-type"] == "application/problem+json"
    wrong = await http.get("/v1/definitions", params={"limit": 0})
    assert wrong.json()["errors"][0]["pointer"] == "/query/limit"
    for cursor in ("!", "AA"):
        assert (await http.get("/v1/definitions", params={"cursor": cursor})).status_code == 422


WRITTEN = """\
# What the shop does at night.
name: commented
nodes:
  - {id: a, type: log, parameters: {message: "x"}}   # says x
"""


async def test_yaml_is_shown_as_it_was_written(http: httpx.AsyncClient) -> None:
    as_yaml = {"Content-Type": "application/yaml"}
    first = await http.post("/v1/definitions", content=WRITTEN, headers=as_yaml)
    assert (await http.get("/v1/definitions/commented")).json()["source"] == WRITTEN

    reworded = WRITTEN.replace("at night", "in the morning")
    again = await http.post("/v1/definitions", json={"source": reworded})
    shown = (await http.get("/v1/definitions/commented")).json()
    assert (first.json()["hash"], again.json()["status"]) == (shown["hash"], "unchanged")
    assert shown["source"] == reworded

    as_data = await http.post("/v1/definitions", json={"document": shown["document"]})
    assert as_data.json()["status"] == "unchanged"
    assert (await http.get("/v1/definitions/commented")).json()["source"] == reworded


async def test_the_text_of_a_removed_definition_is_gone(http: httpx.AsyncClient) -> None:
    started = await http.post("/v1/executions", json={"definition": WRITTEN})
    assert (await http.get("/v1/definitions/commented")).json()["source"] == WRITTEN
    document = (await http.get("/v1/definitions/commented")).json()["document"]
    await http.get(f"/v1/executions/{started.json()['id']}/wait", params={"seconds": 30})
    assert (await http.delete("/v1/definitions/commented")).status_code == 204

    await http.post("/v1/definitions", json={"document": document})
    assert "#" not in (await http.get("/v1/definitions/commented")).json()["source"]


async def test_validation_finds_what_a_deploy_refuses_of_triggers(http: httpx.AsyncClient) -> None:
    nightly = {
        "name": "nightly",
        "input_schema": {"type": "object", "required": ["shop"]},
        "nodes": [
            {"id": "at-two", "type": "schedule", "parameters": {"cron": "0 2 * * *"}},
            {"id": "say", "type": "log", "parameters": {"message": "hi"}},
        ],
        "edges": [{"src": "at-two", "dst": "say"}],
    }
    checked = (await http.post("/v1/definitions/validate", json=nightly)).json()
    assert checked["valid"] is False
    [finding] = checked["findings"]
    assert (finding["pointer"], finding["rule"]) == ("/input_schema", "schedule-input")
    assert (await http.post("/v1/definitions", json=nightly)).status_code == 422
