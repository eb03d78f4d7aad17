"""The header ``Idempotency-Key``: its syntax, and the routes that accept it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header
from fastapi.routing import APIRoute
from pydantic import AfterValidator

KEY_HEADER = "Idempotency-Key"


def _as_sent(header: str | None) -> str | None:
    """Return the header's text. HTTP does not define the encoding of header bytes: UTF-8 is tried first; other
    bytes are decoded one by one."""
    try:
        return header.encode("latin-1").decode() if header is not None else None
    except UnicodeError:
        return header


IdempotencyKey = Annotated[
    str | None,
    AfterValidator(_as_sent),
    Header(
        alias=KEY_HEADER,
        min_length=1,
        max_length=500,
        description="Any text of yours: the same call with the same key again does nothing new.",
    ),
]


def takes_key(route: object) -> bool:
    """Whether calls of a route may carry a key; false for None, which is no route."""
    if not isinstance(route, APIRoute):
        return False
    return any(field.alias == KEY_HEADER for field in route.dependant.header_params)
