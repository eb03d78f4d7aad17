"""Calls with a key: the same one again makes nothing new, and its answer says so."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header, Response, status

from dalsegno.model.execution import ExecutionView
from dalsegno.server.schemas.executions import Execution

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=500,
        description="Any text of yours: the same call with the same key again does nothing new.",
    ),
]
USED_BEFORE: dict[int | str, dict[str, Any]] = {
    200: {"model": Execution, "description": "The key was used before: that execution."}
}


def answer_for(view: ExecutionView, response: Response, key: str | None, began: float) -> Execution:
    """201, or 200 where the execution is older than the call that began then."""
    if key is not None and view.created_at < began:
        response.status_code = status.HTTP_200_OK
    response.headers["Location"] = f"/v1/executions/{view.id}"
    return Execution.of(view)
