"""Parameters of a query that a route does not know are refused: a filter that is not read would show too much."""

from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI


@pytest.mark.parametrize(
    ("path", "name", "said"),
    [
        ("executions?states=FAILED", "states", "did you mean 'state'?"),
        ("executions?limit=1&colour=red", "colour", "; there are 'created_since', 'created_until'"),
        ("definitions?limt=1", "limt", "did you mean 'limit'?"),
        ("workers?state=dead", "state", "; there are none here"),
        ("health?verbose", "verbose", "; there are none here"),
    ],
)
async def test_an_unknown_parameter_is_named_with_what_is_nearest(
    http: httpx.AsyncClient, path: str, name: str, said: str
) -> None:
    answer = await http.get(f"/v1/{path}")
    told = answer.json()
    assert (answer.status_code, told["code"]) == (422, "DS-120")
    assert told["detail"].startswith(f"/query/{name}: There is no parameter of this name")
    assert said in told["detail"]
    assert [each["pointer"] for each in told["errors"]] == [f"/query/{name}"]


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("executions", {"inputs": 1}, "/body/inputs: There is no field of this name; did you mean 'input'?"),
        ("executions", {"colour": 1}, "/body/colour: There is no field of this name; there are '"),
        ("executions/batch", {"starts": [{"inptu": 1}]}, "did you mean 'input'?"),
        (
            "definitions",
            {"sourc": "return 1"},
            "/body/sourc: There is no field of this name; did you mean 'source'?",
        ),
    ],
)
async def test_an_unknown_field_is_named_with_what_is_nearest(
    http: httpx.AsyncClient, path: str, body: dict[str, object], said: str
) -> None:
    answer = await http.post(f"/v1/{path}", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "DS-120")
    assert any(said in f"{each['pointer']}: {each['message']}" for each in answer.json()["findings"])


async def test_a_body_that_is_no_json_says_where(http: httpx.AsyncClient) -> None:
    body = b'{"workflow": "a",\n "input": x}'
    answer = await http.post("/v1/executions", content=body, headers={"Content-Type": "application/json"})
    told = answer.json()
    assert (answer.status_code, told["detail"]) == (
        400,
        "the body is not valid JSON: Expecting value (line 2, column 11)",
    )
    (finding,) = told["findings"]
    assert (finding["pointer"], finding["line"], finding["column"]) == ("/body", 2, 11)


async def test_a_refused_command_does_nothing(http: httpx.AsyncClient) -> None:
    graph = {"name": "g", "nodes": [{"id": "a", "type": "log", "parameters": {"message": "x"}}]}
    answer = await http.post("/v1/definitions?alais=stable", json=graph)
    assert (answer.status_code, "did you mean 'alias'?" in answer.json()["detail"]) == (422, True)
    assert (await http.get("/v1/definitions/g")).status_code == 404


async def test_every_parameter_that_is_documented_is_known(
    http: httpx.AsyncClient, application: FastAPI
) -> None:
    """The value may not fit; the name must."""
    asked = 0
    for path, methods in application.openapi()["paths"].items():
        if "get" not in methods or path == "/v1/stream":
            continue
        names = [each["name"] for each in methods["get"].get("parameters", ()) if each["in"] == "query"]
        if names:
            answer = await http.get(
                path.replace("{", "").replace("}", ""), params=dict.fromkeys(names, "0"), timeout=30
            )
            assert "There is no parameter" not in answer.text, path
            asked += 1
    assert asked >= 5


async def test_the_query_of_a_delivery_is_the_senders_own(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/hooks/nothing?token=1", json={})
    assert answer.status_code == 404
