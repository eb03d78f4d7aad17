"""Who may do what: a route names the scope it needs, and is told who called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from fastapi import APIRouter, Depends, Request
from fastapi.params import Depends as Dependency
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope as ASGIScope

from dalsegno.errors import Forbidden, Unauthenticated
from dalsegno.server.slashes import separated

Scope = Literal["read", "run", "admin", "worker"]

GRANTS: dict[Scope, frozenset[Scope]] = {
    "read": frozenset(("read",)),
    "run": frozenset(("read", "run")),
    "worker": frozenset(("worker",)),
    "admin": frozenset(("read", "run", "admin", "worker")),
}
"""What a scope includes."""

KEY_WANTED = "this needs a key: send 'Authorization: Bearer ds_…'; `dalsegno keys add NAME` makes one"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. Without keys in the store everybody on this machine is ``open``."""

    name: str
    scopes: frozenset[Scope]
    via: Literal["open", "key", "session", "nobody"] = "open"
    key: str | None = None
    """The id of the key, also behind a session."""


OPEN = Caller("open", GRANTS["admin"])
NOBODY = Caller("nobody", frozenset(), "nobody")
"""Comes in without a key, by the few routes that have a check of their own or need none."""


def caller_of(request: Request) -> Caller:
    """As the guard found out. Where no guard stood nobody comes in."""
    caller: Caller = getattr(request.state, "caller", NOBODY)
    return caller


def needs(scope: Scope) -> Dependency:
    """A dependency that refuses callers without this scope and gives the route its `Caller`."""

    async def check(request: Request) -> Caller:
        caller = caller_of(request)
        _check(caller, scope)
        return caller

    check.scope = scope  # type: ignore[attr-defined]  # read by `Scopes`
    return _depends(check)


class Scopes:
    """What the routes of a server need, for who stands before them."""

    def __init__(self, routers: Iterable[APIRouter], prefix: str) -> None:
        self.prefix = prefix
        self._routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]

    def check(self, request: ASGIScope, caller: Caller) -> None:
        """Before the body is read: who may not call a route is told that, and nothing about what was sent."""
        if not request["path"].startswith(self.prefix):
            return
        here = {**request, "path": separated(request).removeprefix(self.prefix)}
        found = next((route for route in self._routes if route.matches(here)[0] is Match.FULL), None)
        for each in found.dependencies if found is not None else ():
            _check(caller, getattr(each.dependency, "scope", None))


def _check(caller: Caller, scope: Scope | None) -> None:
    if scope is None:
        return
    if caller.via == "nobody":
        raise Unauthenticated(KEY_WANTED)
    if scope not in caller.scopes:
        held = ", ".join(sorted(caller.scopes)) or "nothing"
        raise Forbidden(f"this needs a key with the scope '{scope}'; '{caller.name}' has {held}")


def _depends(check: Callable[[Request], Awaitable[Caller]]) -> Dependency:
    found = Depends(check)
    if not isinstance(found, Dependency):
        raise TypeError("FastAPI's Depends is not what it was")
    return found
