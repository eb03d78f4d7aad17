"""The table of routes: a route without path parameters is found by one lookup.

The framework tries one route after the other, and each router of several twice; and it builds every route a second
time on the first request, while all others wait. Its routers therefore only serve the reference, and requests are
routed by the table. The most frequent routes, which start executions and claim tasks, have paths without
parameters.
``{name:whole}`` matches names that may contain slashes. Starlette's own ``path`` stops at a line break and ignores
one at the end: ``DELETE /v1/definitions/a%0A`` would remove ``a``. Here a name is the complete text, and its reader
reports what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette._utils import get_route_path
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import URLPath
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send

from dalsegno.server.http.paths import joined, separated


class Table:
    def __init__(self, routers: Iterable[APIRouter], prefix: str) -> None:
        self.prefix = prefix
        self._routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
        self._plain = {
            (method, prefix + route.path): route
            for route in self._routes
            if not route.param_convertors
            for method in route.methods or ()
            if self._first({"type": "http", "method": method, "path": route.path}) is route
        }

    def plain(self, request: Scope) -> APIRoute | None:
        return self._plain.get((request["method"], request["path"]))

    def find(self, request: Scope) -> APIRoute | None:
        """Return the route that will be called."""
        if (found := self.plain(request)) is not None:
            return found
        if not request["path"].startswith(self.prefix):
            return None
        return self._first({**request, "path": separated(request).removeprefix(self.prefix)})

    def match(self, request: Scope) -> tuple[Match, Scope]:
        """Match a request as the framework's routes do: fully, or except for the method."""
        path = get_route_path(request)
        if not path.startswith(self.prefix):
            return Match.NONE, {}
        below = {**request, "path": path.removeprefix(self.prefix), "root_path": ""}
        partial: Scope | None = None
        for route in self._routes:
            found, more = route.matches(below)
            if found is Match.FULL:
                return found, more
            if found is Match.PARTIAL and partial is None:
                partial = more
        return (Match.PARTIAL, partial) if partial is not None else (Match.NONE, {})

    def _first(self, request: Scope) -> APIRoute | None:
        return next((route for route in self._routes if route.matches(request)[0] is Match.FULL), None)


class TableRoutes(BaseRoute):
    """All routes of a table as one route."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http":
            return Match.NONE, {}
        route = self.table.plain(scope)
        if route is None:
            return self.table.match(scope)
        return Match.FULL, {"route": route, "endpoint": route.endpoint, "path_params": {}}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope["route"].handle(scope, receive, send)

    def url_path_for(self, name: str, /, **path_params: object) -> URLPath:
        raise NoMatchFound(name, path_params)


class Whole(Convertor[str]):
    regex = r"(?s:.*)"

    def convert(self, value: str) -> str:
        return joined(value)

    def to_string(self, value: str) -> str:
        return value


class Part(Whole):
    """``{alias:part}``: the text between two slashes."""

    regex = "[^/]+"


register_url_convertor("whole", Whole())
register_url_convertor("part", Part())
