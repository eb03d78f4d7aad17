"""Calls with a key: the same one again makes nothing new, and its answer says so."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header, Response, status
from fastapi.routing import APIRoute
from pydantic import AfterValidator

from dalsegno.engine.starting import Started
from dalsegno.errors import InvalidInput, StoredQuotaExceeded
from dalsegno.server.access import Caller
from dalsegno.server.large_values import whole
from dalsegno.server.office import Office
from dalsegno.server.schemas.executions import Execution

SHOWN = 100
KEY_HEADER = "Idempotency-Key"


def _as_sent(header: str | None) -> str | None:
    """HTTP leaves open what the bytes of a header mean. Whoever writes more than ASCII writes UTF-8; what is none is
    taken byte by byte."""
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
USED_BEFORE: dict[int | str, dict[str, Any]] = {
    200: {"model": Execution, "description": "The key was used before: that execution."}
}


def takes_key(route: object) -> bool:
    """Whether calls of it may carry a key; of None, which is no route, not."""
    if not isinstance(route, APIRoute):
        return False
    return any(field.alias == KEY_HEADER for field in route.dependant.header_params)


def one_key(header: str | None, body: str | None, field: str = "idempotency_key") -> str | None:
    """A key may stand in either place, but not two of them."""
    if header is not None and body is not None and header != body:
        raise InvalidInput(
            f"/body/{field}: it says {body[:SHOWN]!r}, and the header {KEY_HEADER} {header[:SHOWN]!r};"
            " send one of them, or the same twice"
        )
    return body if body is not None else header


async def starter_of(office: Office, caller: Caller, made: str | None) -> str | None:
    """The API key that a new execution counts for as stored. Where an earlier call with the same key has ``made`` it,
    it is found again although that quota is used up."""
    archive = office.client.stack.archive
    try:
        return await office.usage.starter(archive, caller)
    except StoredQuotaExceeded:
        if made is None or await archive.outline(made) is None:
            raise
        return None


async def answer_for(office: Office, started: Started, response: Response) -> Execution:
    """201, or 200 where an earlier call made the execution."""
    if not started.is_new:
        response.status_code = status.HTTP_200_OK
    response.headers["Location"] = f"/v1/executions/{started.execution}"
    if started.begun is not None:
        return Execution.begun(started.begun)
    return Execution.of(await whole(office, started.execution))
