"""Parameters of a query that a route does not know: refused, because a filter that is not read shows too much."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from dalsegno.model.suggestion import did_you_mean, listed

LONGEST_NAME = 100


class KnownParameters:
    """A dependency of every route that reads its query by name. What each route knows is found out once."""

    def __init__(self) -> None:
        self._known: dict[int, frozenset[str]] = {}

    async def __call__(self, request: Request) -> None:
        given = request.query_params.keys()
        if not given:
            return
        known = self._known_to(request.scope.get("route"))
        unknown = [name for name in dict.fromkeys(given) if name not in known]
        if unknown:
            raise RequestValidationError([_finding(name, known) for name in unknown])

    def _known_to(self, route: object) -> frozenset[str]:
        if not isinstance(route, APIRoute):
            return frozenset()
        if id(route) not in self._known:  # routes live as long as the application, and this with them
            self._known[id(route)] = frozenset(_names(route.dependant))
        return self._known[id(route)]


def _names(dependant: Dependant) -> Iterable[str]:
    for field in dependant.query_params:
        yield field.alias
    for below in dependant.dependencies:
        yield from _names(below)


def _finding(name: str, known: frozenset[str]) -> dict[str, object]:
    shown = name[:LONGEST_NAME]
    instead = did_you_mean(name, sorted(known))
    if not instead:
        instead = f"; there are {listed(sorted(known))}" if known else "; there are none here"
    return {
        "type": "unknown_parameter",
        "loc": ("query", shown),
        "msg": f"There is no parameter of this name{instead}",
        "input": shown,
    }
