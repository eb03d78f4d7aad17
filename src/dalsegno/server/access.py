"""Who may do what: a route names the scope it needs, and is told who called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from fastapi import Depends, Request
from fastapi.params import Depends as Dependency

from dalsegno.errors import Forbidden, Unauthenticated

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
    queues: frozenset[str] | None = None
    """Whose tasks it may take as a remote worker; None: of all queues."""


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
        check_scope(caller, scope)
        return caller

    check.scope = scope  # type: ignore[attr-defined]  # read by `scope_of`
    return _depends(check)


def scope_of(dependency: Dependency) -> Scope | None:
    """What a dependency made by `needs` asks for."""
    found: Scope | None = getattr(dependency.dependency, "scope", None)
    return found


def check_scope(caller: Caller, scope: Scope) -> None:
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
