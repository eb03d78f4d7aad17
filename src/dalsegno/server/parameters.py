"""Parameters of a query that a route does not know: refused, because a filter that is not read shows too much."""

from __future__ import annotations

from fastapi import Request
from fastapi.exceptions import RequestValidationError

from dalsegno.model.suggestion import did_you_mean, listed

LONGEST_NAME = 100
MOST_NAMED = 10
"""Unknown parameters that are reported one by one; the others are counted."""


MOST = 200
"""Parameters of one query: filters that take a value several times fit in."""


def refuse_too_many(request: Request) -> None:
    """Before the query is parsed."""
    found = request.scope["query_string"].count(b"&") + 1
    if found > MOST:
        words = f"There are {found:,} parameters; a query has at most {MOST}"
        raise RequestValidationError([_too_many_parameters(words)])


def _too_many_parameters(words: str) -> dict[str, object]:
    return {"type": "unknown_parameter", "loc": ("query",), "msg": words, "input": None}


def refuse_unknown(request: Request, known: frozenset[str]) -> None:
    if not request.scope["query_string"]:
        return
    unknown = [name for name in dict.fromkeys(request.query_params.keys()) if name not in known]
    if unknown:
        found = [_finding(name, known) for name in unknown[:MOST_NAMED]]
        raise RequestValidationError([*found, *_rest(len(unknown) - MOST_NAMED)])


def _rest(more: int) -> list[dict[str, object]]:
    return [_too_many_parameters(f"There are {more:,} more parameters of unknown names")] if more > 0 else []


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
