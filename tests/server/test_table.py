"""The table of routes finds what the framework would have found."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.routing import Match
from starlette.types import Scope

from dalsegno.server.application import ROUTERS
from dalsegno.server.route import PREFIX
from dalsegno.server.table import PlainRoutes, Table

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
    match, more = PlainRoutes(TABLE).matches(request("POST", "/v1/things/open"))
    assert (match, more["endpoint"], more["route"], more["path_params"]) == (Match.FULL, plain, found, {})


def test_a_route_that_another_hides_stays_hidden() -> None:
    assert TABLE.plain(request("GET", "/v1/things/hidden")) is None
    assert endpoint("GET", "/v1/things/hidden") is one


def test_parameters_other_methods_and_other_places_go_the_usual_way() -> None:
    assert endpoint("GET", "/v1/things/a") is one
    for method, path in (
        ("GET", "/v1/things/open/x"),
        ("DELETE", "/v1/things/open"),
        ("POST", "/things/open"),
    ):
        assert endpoint(method, path) is None
        assert PlainRoutes(TABLE).matches(request(method, path))[0] is Match.NONE


def test_the_routes_that_are_called_most_are_plain() -> None:
    table = Table(ROUTERS, PREFIX)
    for method, path in (("POST", "/v1/executions"), ("POST", "/v1/tasks/claim"), ("GET", "/v1/executions")):
        assert table.plain(request(method, path)) is not None
