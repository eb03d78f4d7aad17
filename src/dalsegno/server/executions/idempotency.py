"""Idempotency keys: a repeated call creates nothing, and its reply says so."""

from __future__ import annotations

from typing import Any

from fastapi import Response, status

from dalsegno.engine.starting.start import Started
from dalsegno.errors import InvalidInput, StoredQuotaExceeded
from dalsegno.server.auth.access import Caller
from dalsegno.server.http.idempotency_key import KEY_HEADER
from dalsegno.server.http.replies import whole
from dalsegno.server.schemas.executions import Execution
from dalsegno.server.services import ServerServices

SHOWN = 100


USED_BEFORE: dict[int | str, dict[str, Any]] = {
    200: {"model": Execution, "description": "The key was used before: that execution."}
}


def one_key(header: str | None, body: str | None, field: str = "idempotency_key") -> str | None:
    """Return the key from the header or the body. Raises InvalidInput if they differ."""
    if header is not None and body is not None and header != body:
        raise InvalidInput(
            f"/body/{field}: it says {body[:SHOWN]!r}, and the header {KEY_HEADER} {header[:SHOWN]!r};"
            " send one of them, or the same twice"
        )
    return body if body is not None else header


async def starter_of(services: ServerServices, caller: Caller, made: str | None) -> str | None:
    """Return the API key that a new execution is counted for. If an earlier call with the same idempotency key has
    ``made`` the execution, it is returned even if the quota is exhausted."""
    archive = services.client.stack.archive
    try:
        return await services.usage.starter(archive, caller)
    except StoredQuotaExceeded:
        if made is None or await archive.outline(made) is None:
            raise
        return None


async def answer_for(services: ServerServices, started: Started, response: Response) -> Execution:
    """Return the execution with status 201, or 200 if an earlier call created it."""
    if not started.is_new:
        response.status_code = status.HTTP_200_OK
    response.headers["Location"] = f"/v1/executions/{started.execution}"
    if started.begun is not None:
        return Execution.begun(started.begun)
    return Execution.of(await whole(services, started.execution))
