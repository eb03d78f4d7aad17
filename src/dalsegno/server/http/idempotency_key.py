"""The header ``Idempotency-Key``: its syntax, the routes that accept it, and the same key in a body."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header
from fastapi.routing import APIRoute
from pydantic import AfterValidator

from dalsegno.errors import InvalidInput

KEY_HEADER = "Idempotency-Key"
SHOWN = 100
"""Characters of a key that messages show."""


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
        description="Any text: repeating the call with the same key has no further effect.",
    ),
]


def takes_key(route: object) -> bool:
    """Whether calls of a route may carry a key; false for None, which is no route."""
    if not isinstance(route, APIRoute):
        return False
    return any(field.alias == KEY_HEADER for field in route.dependant.header_params)


def one_key(header: str | None, body: str | None, field: str = "idempotency_key") -> str | None:
    """Return the key from the header or the body. Raises InvalidInput if they differ."""
    if header is not None and body is not None and header != body:
        raise InvalidInput(
            f"/body/{field}: it says {body[:SHOWN]!r}, and the header {KEY_HEADER} {header[:SHOWN]!r};"
            " send one of them, or the same twice"
        )
    return body if body is not None else header
