"""The table of routes: those without parameters in their path are found by it at once.

The framework asks one route after the other, and each router of several twice; and it builds every route a second time
when the first request comes, while all others wait. So its routers only serve the reference, and requests go by the
table. The routes that are called most, to start executions and to take tasks, have plain paths.
"""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette._utils import get_route_path
from starlette.datastructures import URLPath
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send

from dalsegno.server.slashes import separated


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
        """The route that will be called."""
        if (found := self.plain(request)) is not None:
            return found
        if not request["path"].startswith(self.prefix):
            return None
        return self._first({**request, "path": separated(request).removeprefix(self.prefix)})

    def match(self, request: Scope) -> tuple[Match, Scope]:
        """As the framework's routes answer: in full, or only but for the method."""
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
    """All routes of a table as one."""

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
