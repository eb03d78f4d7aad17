"""A deploy or start that is refused changes nothing; and a definition that has no name takes nobody else's."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

LOGGING: dict[str, Any] = {"nodes": [{"id": "a", "type": "log", "parameters": {"message": "x"}}]}
STRICT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def is_stored(http: httpx.AsyncClient, name: str) -> bool:
    return (await http.get(f"/v1/definitions/{name}")).status_code == 200


@pytest.mark.parametrize("alias", ["BAD!", "latest"])
async def test_a_deploy_with_a_wrong_alias_stores_nothing(http: httpx.AsyncClient, alias: str) -> None:
    document = {**LOGGING, "name": "al"}
    bare = await http.post("/v1/definitions", params={"alias": alias}, json=document)
    wrapped = await http.post("/v1/definitions", json={"document": document, "alias": alias})

    assert (bare.status_code, wrapped.status_code) == (422, 422)
    assert not await is_stored(http, "al")


async def test_a_deploy_whose_part_is_refused_stores_none_of_its_parts(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json={**LOGGING, "name": "whole/taken"})
    scripts = [
        {"id": name, "type": "script", "parameters": {"source": "return 1"}} for name in ("free", "taken")
    ]
    refused = await http.post("/v1/definitions", json={"name": "whole", "nodes": scripts})

    assert refused.status_code == 409, refused.text
    assert not await is_stored(http, "whole")
    assert not await is_stored(http, "whole%2Ffree")


@pytest.mark.parametrize(
    "wrong",
    [
        {"delay": "soon"},
        {"input": {"n": "one"}},
        {"input": {"n": 1, "text": "\ud800"}},
        {"input": {"n": 1}, "version": 7},
        {"input": {"n": 1}, "delay": 5, "start_at": "2030-01-01T00:00:00Z"},
    ],
)
async def test_a_start_that_is_refused_stores_no_definition(
    http: httpx.AsyncClient, wrong: dict[str, Any]
) -> None:
    definition = {**LOGGING, "name": "side", "input_schema": STRICT}
    body = json.dumps({"definition": definition, **wrong})  # which can write half a character
    refused = await http.post("/v1/executions", content=body, headers={"Content-Type": "application/json"})
    assert refused.status_code == 422, refused.text
    assert not await is_stored(http, "side")


async def test_a_submission_that_is_refused_stores_no_definition(http: httpx.AsyncClient) -> None:
    document = {**LOGGING, "name": "side", "input_schema": STRICT, "input": {"n": "one"}}
    refused = await http.post("/v1/workflows", json=document)
    assert refused.status_code == 422, refused.text
    assert not await is_stored(http, "side")


@pytest.mark.parametrize("body", [LOGGING, {"source": "return 1", "kind": "script"}])
async def test_a_definition_without_a_name_is_not_deployed(
    http: httpx.AsyncClient, body: dict[str, Any]
) -> None:
    refused = await http.post("/v1/definitions", json=body)
    assert refused.status_code == 422
    assert "has no name: write 'name' into" in refused.json()["detail"]
    assert (await http.get("/v1/definitions")).json()["items"] == []

    checked = (await http.post("/v1/definitions/validate", json=body)).json()
    assert (checked["valid"], checked["name"]) == (True, None)


async def test_a_start_without_a_name_is_named_after_its_content(http: httpx.AsyncClient) -> None:
    other = {"nodes": [{"id": "b", "type": "log", "parameters": {"message": "y"}}]}
    names = []
    for definition in (LOGGING, LOGGING, other, "return 1", "return 2"):
        started = await http.post("/v1/executions", json={"definition": definition})
        assert started.status_code == 201, started.text
        assert started.json()["version"] == 1
        names.append(started.json()["workflow"])
    submitted = await http.post("/v1/workflows", json=other)

    assert names[0] == names[1]
    assert len(set(names)) == 4
    assert submitted.json()["workflow"] == names[2]


async def test_one_source_under_two_names_is_two_workflows(http: httpx.AsyncClient) -> None:
    for name in ("one", "two"):
        deployed = await http.post("/v1/definitions", json={"source": "return 1", "name": name})
        assert (deployed.status_code, deployed.json()["name"]) == (201, name)
    for name in ("one", "two"):
        started = await http.post("/v1/executions", json={"workflow": name})
        assert (started.json()["workflow"], started.json()["version"]) == (name, 1)
        again = await http.post("/v1/definitions", json={"source": "return 1", "name": name})
        assert again.json()["status"] == "unchanged"
