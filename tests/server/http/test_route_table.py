"""The table of routes finds what the framework would have found."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.routing import Match
from starlette.types import Scope

from dalsegno.server.application import ROUTERS
from dalsegno.server.http.request import PREFIX
from dalsegno.server.http.routing import Table, TableRoutes

router = APIRouter(prefix="/things")


@router.get("/{name}")
async def one(name: str) -> str:
    return name


@router.get("/hidden")
async def hidden() -> str:
    return "behind a route that takes every name"


@router.post("/open")
async def plain() -> str:
    return "open"


TABLE = Table((router,), "/v1")


def request(method: str, path: str) -> Scope:
    return {"type": "http", "method": method, "path": path, "raw_path": path.encode()}


def endpoint(method: str, path: str) -> object:
    found = TABLE.find(request(method, path))
    return found.endpoint if found is not None else None


def test_plain_paths_are_found_at_once() -> None:
    found = TABLE.plain(request("POST", "/v1/things/open"))
    assert found is not None
    assert found.endpoint is plain
    match, more = TableRoutes(TABLE).matches(request("POST", "/v1/things/open"))
    assert (match, more["endpoint"], more["route"], more["path_params"]) == (Match.FULL, plain, found, {})


def test_a_route_that_another_hides_stays_hidden() -> None:
    assert TABLE.plain(request("GET", "/v1/things/hidden")) is None
    assert endpoint("GET", "/v1/things/hidden") is one


def test_parameters_are_found_other_methods_and_places_are_not() -> None:
    assert endpoint("GET", "/v1/things/a") is one
    match, more = TableRoutes(TABLE).matches(request("GET", "/v1/things/a"))
    assert (match, more["endpoint"], more["path_params"]) == (Match.FULL, one, {"name": "a"})
    for method, path, wanted in (
        ("GET", "/v1/things/open/x", Match.NONE),
        ("DELETE", "/v1/things/open", Match.PARTIAL),
        ("POST", "/things/open", Match.NONE),
    ):
        assert endpoint(method, path) is None
        assert TableRoutes(TABLE).matches(request(method, path))[0] is wanted


def test_the_routes_that_are_called_most_are_plain() -> None:
    table = Table(ROUTERS, PREFIX)
    for method, path in (("POST", "/v1/executions"), ("POST", "/v1/tasks/claim"), ("GET", "/v1/executions")):
        assert table.plain(request(method, path)) is not None
