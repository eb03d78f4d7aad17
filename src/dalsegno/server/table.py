"""The table of routes: those without parameters in their path are found by it at once.

The framework asks one route after the other, and each router of several twice. The routes that are called most, to
start executions and to take tasks, have plain paths.
"""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter
from fastapi.routing import APIRoute
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

    def _first(self, request: Scope) -> APIRoute | None:
        return next((route for route in self._routes if route.matches(request)[0] is Match.FULL), None)


class PlainRoutes(BaseRoute):
    """All routes with plain paths as one, to stand before the others."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        route = self.table.plain(scope) if scope["type"] == "http" else None
        if route is None:
            return Match.NONE, {}
        return Match.FULL, {"route": route, "endpoint": route.endpoint, "path_params": {}}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope["route"].handle(scope, receive, send)

    def url_path_for(self, name: str, /, **path_params: object) -> URLPath:
        raise NoMatchFound(name, path_params)
