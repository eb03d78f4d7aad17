"""Names with slashes: `%2F` belongs to the name, `/` does not."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from dalsegno.client import Client
from tests.server.conftest import LiveServer


def graph(name: str, message: str = "x") -> dict[str, Any]:
    return {"name": name, "nodes": [{"id": "a", "type": "log", "parameters": {"message": message}}]}


async def deploy(http: httpx.AsyncClient, *graphs: dict[str, Any]) -> None:
    for each in graphs:
        assert (await http.post("/v1/definitions", json=each)).status_code == 201


async def test_a_name_that_looks_like_a_version_is_itself(http: httpx.AsyncClient) -> None:
    await deploy(http, graph("v"), graph("v", "y"), graph("v/versions/1"))

    found = await http.get("/v1/definitions/v%2Fversions%2F1")
    assert found.json()["name"] == "v/versions/1"
    assert (await http.delete("/v1/definitions/v%2Fversions%2F1")).status_code == 204
    left = (await http.get("/v1/definitions/v/versions")).json()
    assert [each["version"] for each in left] == [2, 1]
    assert (await http.delete("/v1/definitions/v/versions/1")).status_code == 204


async def test_what_follows_an_encoded_slash_is_no_part_of_the_route(http: httpx.AsyncClient) -> None:
    await deploy(http, graph("v"))
    for path in ("v%2Fversions", "v%2fversions", "v%2Fdiff?before=1"):
        answer = await http.get(f"/v1/definitions/{path.partition('?')[0]}")
        assert answer.status_code == 404, path
        assert "there is no workflow 'v/" in answer.json()["detail"]


@pytest.mark.parametrize("name", ["team/checkout", "a%2Fb", "a b/ü", "x/versions"])
async def test_every_name_comes_back_by_its_own_path(http: httpx.AsyncClient, name: str) -> None:
    await deploy(http, graph(name))
    path = "/v1/definitions/" + name.replace("%", "%25").replace("/", "%2F")
    assert (await http.get(path)).json()["name"] == name
    assert len((await http.get(f"{path}/versions")).json()) == 1
    aliases = await http.put(f"{path}/aliases/stable", json={"version": 1})
    assert aliases.json() == {"stable": 1}


async def test_a_slash_that_is_not_encoded_still_finds_a_name(http: httpx.AsyncClient) -> None:
    await deploy(http, graph("team/checkout"))
    assert (await http.get("/v1/definitions/team/checkout")).json()["name"] == "team/checkout"


async def test_schedules_too(http: httpx.AsyncClient) -> None:
    await deploy(http, graph("v"))
    for name in ("n", "n%2Fpause"):
        made = await http.put(f"/v1/schedules/{name}", json={"timing": "@daily", "workflow": "v"})
        assert made.status_code == 201, made.text
    assert (await http.get("/v1/schedules/n%2Fpause")).json()["name"] == "n/pause"
    assert (await http.post("/v1/schedules/n%2Fpause/pause")).json()["name"] == "n/pause"
    assert (await http.get("/v1/schedules/n")).json()["state"] == "RUNNING"


async def test_an_encoded_slash_in_an_alias_is_told(http: httpx.AsyncClient) -> None:
    await deploy(http, graph("v"))
    refused = await http.put("/v1/definitions/v/aliases/a%2Fb", json={"version": 1})
    assert refused.status_code == 422
    assert "'a/b' cannot be an alias" in refused.json()["detail"]
    assert (await http.delete("/v1/definitions/v/aliases/a%2Fb")).status_code == 404


def test_over_a_socket(live: LiveServer) -> None:
    with httpx.Client(base_url=live.url) as http:
        for each in (graph("v"), graph("v/versions/1")):
            http.post("/v1/definitions", json=each)
        assert http.delete("/v1/definitions/v%2Fversions%2F1").status_code == 204
        assert http.get("/v1/definitions/v", params={"version": 1}).status_code == 200
    with Client(live.url) as client:
        client.deploy(graph("v/versions"))
        assert client.start("v/versions").result(30) is not None
