"""Parameters of a query that a route does not know: refused, because a filter that is not read shows too much."""

from __future__ import annotations

from fastapi import Request
from fastapi.exceptions import RequestValidationError

from dalsegno.model.suggestion import did_you_mean, listed

LONGEST_NAME = 100


def refuse_unknown(request: Request, known: frozenset[str]) -> None:
    if not request.scope["query_string"]:
        return
    unknown = [name for name in dict.fromkeys(request.query_params.keys()) if name not in known]
    if unknown:
        raise RequestValidationError([_finding(name, known) for name in unknown])


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
