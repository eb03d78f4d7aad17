"""Access control: a route declares the scope it needs and receives the caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from fastapi import Depends, Request
from fastapi.params import Depends as Dependency

from dalsegno.admin.keys import GRANTS, Key, Scope
from dalsegno.errors import Forbidden, Unauthenticated

KEY_WANTED = "this needs a key: send 'Authorization: Bearer ds_…'; `dalsegno keys add NAME` makes one"


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request. While the store holds no keys, every caller on this machine is ``open``."""

    name: str
    scopes: frozenset[Scope]
    via: Literal["open", "key", "session", "nobody"] = "open"
    key: str | None = None
    """The id of the key, also for a session."""
    queues: frozenset[str] | None = None
    """Queues whose tasks it may claim as a remote worker; None: all queues."""


OPEN = Caller("open", GRANTS["admin"])
NOBODY = Caller("nobody", frozenset(), "nobody")
"""A caller without a key, on the few routes that check access themselves or need no key."""


def caller_with(key: Key, via: Literal["key", "session"]) -> Caller:
    return Caller(key.name, key.grants, via, key.id, key.served_queues)


def caller_of(request: Request) -> Caller:
    """Return the caller that the guard determined. Without a guard there is no access."""
    caller: Caller = getattr(request.state, "caller", NOBODY)
    return caller


def needs(scope: Scope) -> Dependency:
    """Return a dependency that refuses callers without this scope and passes the `Caller` to the route."""

    async def check(request: Request) -> Caller:
        caller = caller_of(request)
        check_scope(caller, scope)
        return caller

    check.scope = scope  # type: ignore[attr-defined]  # read by `scope_of`
    return _depends(check)


def scope_of(dependency: Dependency) -> Scope | None:
    """Return the scope that a dependency made by `needs` requires."""
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
        raise TypeError("FastAPI's Depends has an unexpected form; this version of FastAPI is not supported")
    return found
