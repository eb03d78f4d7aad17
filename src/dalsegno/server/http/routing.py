"""The table of routes: a route without path parameters is found by one lookup.

The framework tries one route after the other, and each router of several twice; and it builds every route a second
time on the first request, while all others wait. Its routers therefore only serve the reference, and requests are
routed by the table. The most frequent routes, which start executions and claim tasks, have paths without
parameters.
``{name:whole}`` matches names that may contain slashes. Starlette's own ``path`` stops at a line break and ignores
one at the end: ``DELETE /v1/definitions/a%0A`` would remove ``a``. Here a name is the complete text, and its reader
reports what is wrong with it.
A route checks path, query and scopes before it reads parameters and body: the framework takes longer to resolve a
dependency than the check itself takes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import cache
from typing import Any, Final, get_args

from fastapi import APIRouter, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.params import Depends as Dependency
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette._utils import get_route_path
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import URLPath
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dalsegno.core.json_fields import Shape, read_fields, unpacked_fields
from dalsegno.engine.subprocesses.examination import value_of
from dalsegno.engine.subprocesses.job_pool import Offload, Requester, requester
from dalsegno.server.auth.authentication import caller_of, check_scope, scope_of
from dalsegno.server.http.request import joined, refuse_nul, refuse_too_many, refuse_unknown, separated
from dalsegno.server.http.responses import replying
from dalsegno.server.schemas.values import Items, Kept, Rest


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


class EncodedSlashes:
    """Middleware right before the routes. All others, including the access log, see the path as received."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        original = scope["path"]

        async def answered(message: Message) -> None:
            scope["path"] = original
            await send(message)

        scope["path"] = separated(scope)
        try:
            await self.app(scope, receive, answered)
        finally:
            scope["path"] = original


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


# -- routes --------------------------------------------------------------------------------------------------


INLINE_BYTES: Final = 65_536
"""Bytes of a body that is decoded in the event loop, which takes a few milliseconds."""


class Route(APIRoute):
    """A route that checks path and query itself, and declares the scopes it needs (`authentication.needs`)."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        dependencies: Sequence[Dependency] | None = None,
        **more: Any,
    ) -> None:
        given = dependencies or ()
        self.scopes = tuple(scope for each in given if (scope := scope_of(each)) is not None)
        others = [each for each in given if scope_of(each) is None]
        super().__init__(
            path, replying(endpoint, more.get("status_code") or 200), dependencies=others, **more
        )
        self.known = frozenset(_query_names(self.dependant))
        """The parameters of its query."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        class ShapedRequest(JsonRequest):
            shape = shape_of(self)

        async def checked(plain: Request) -> Response:
            request = ShapedRequest(plain.scope, plain.receive)
            refuse_too_many(request)
            refuse_nul(request)
            refuse_unknown(request, self.known)
            for scope in self.scopes:
                check_scope(caller_of(request), scope)
            requester.set(requester_of(request))
            return await handle(request)

        return checked


def requester_of(request: Request) -> Requester:
    """Return the requester of this request's jobs, which also signals when the jobs are no longer needed."""
    address = request.client.host if request.client is not None else ""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return Requester(caller_of(request).key or address, gone)


def _query_names(dependant: Dependant) -> Iterable[str]:
    for field in dependant.query_params:
        yield field.alias
    for below in dependant.dependencies:
        yield from _query_names(below)


# -- JSON bodies, decoded by the shape of their route: short ones here, long ones in a process -----------------


class JsonRequest(Request):
    """A request whose body is decoded by a shape. The framework's own decoder builds every object of it in the
    event loop."""

    shape = Shape()

    async def json(self) -> Any:
        """Return the decoded body. Raises json.JSONDecodeError, ValueError or RecursionError, as the framework
        expects, and DalSegnoError."""
        if not hasattr(self, "_json"):
            offload: Offload = self.app.state.services.client.offload
            self._json = await read_json(await self.body(), self.shape, offload)
        return self._json


async def read_json(body: bytes, shape: Shape, offload: Offload) -> Any:
    if len(body) <= INLINE_BYTES:
        return read_fields(body, shape)
    return unpacked_fields(value_of(await offload.large("fields", body, shape)))


def shape_of(route: APIRoute) -> Shape:
    """Return the shape of the model that a route takes as its body."""
    field = route.body_field
    models = _models_in(field.field_info.annotation) if field is not None else []
    return _shape_of(models[0]) if len(models) == 1 else Shape()


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for each in get_args(annotation) for model in _models_in(each)]


@cache
def _shape_of(model: type[BaseModel]) -> Shape:
    kept: dict[str, dict[str, str]] = {"values": {}, "documents": {}, "members": {}}
    items: dict[str, Shape] = {}
    rest: str | None = None
    apart: tuple[str, ...] = ()
    for name, field in model.model_fields.items():
        for mark in field.metadata:
            if isinstance(mark, Rest):
                rest, apart = name, mark.apart
            elif isinstance(mark, Items):
                items[name] = _shape_of(_models_in(field.annotation)[0])
            elif isinstance(mark, Kept):
                kept[mark.kind][name] = mark.what
    is_closed = rest is not None or model.model_config.get("extra") == "forbid"
    known = tuple(field.alias or name for name, field in model.model_fields.items() if name != rest)
    return Shape(**kept, known=known if is_closed else None, rest=rest, apart=apart, items=items)
