"""Texts that not every store can hold are refused before any store is asked, and so the same everywhere."""

from __future__ import annotations

from fastapi import Request
from fastapi.exceptions import RequestValidationError

NUL = "\0"
NO_NUL = "It must not hold a NUL character, which not every store can keep"
LONGEST_SHOWN = 100
MOST_SHOWN = 10


def refuse_nul(request: Request) -> None:
    """In the path and the query; bodies see to it themselves."""
    given = [(("path", name), value) for name, value in request.path_params.items()]
    if request.scope["query_string"]:
        given += [(("query", name), value) for name, value in request.query_params.multi_items()]
    found = [place for place, value in given if NUL in place[1] or (isinstance(value, str) and NUL in value)]
    if found:
        raise RequestValidationError([_finding(*place) for place in found[:MOST_SHOWN]])


def _finding(part: str, name: str) -> dict[str, object]:
    shown = name.replace(NUL, "")[:LONGEST_SHOWN]
    return {"type": "nul", "loc": (part, shown), "msg": NO_NUL, "input": shown}
