"""Checks of every route before a request's body and parameters are read.

They run here and not as dependencies: the framework takes longer to resolve a dependency than the check itself
takes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.params import Depends as Dependency
from fastapi.routing import APIRoute

from dalsegno.engine.subprocesses.job_pool import Requester, requester
from dalsegno.server.auth.access import caller_of, check_scope, scope_of
from dalsegno.server.http.json_request import JsonRequest, shape_of
from dalsegno.server.http.replies import replying
from dalsegno.server.http.request import refuse_nul, refuse_too_many, refuse_unknown

PREFIX = "/v1"
"""Prefix of all API paths, except those that other software expects elsewhere."""


class Route(APIRoute):
    """A route that checks path and query itself, and declares the scopes it needs (`access.needs`)."""

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
    """Return the requester of this request's jobs, which also tells when the jobs are no longer wanted."""
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
