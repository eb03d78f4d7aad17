"""``/v1/executions/{id}/wait``: an answer when it has ended, for whoever cannot or does not want to stream."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request

from dalsegno.server import deadlines
from dalsegno.server.access import caller_of, needs
from dalsegno.server.large_values import whole
from dalsegno.server.office import Office, TheOffice
from dalsegno.server.route import Route
from dalsegno.server.routes.executions import ExecutionId
from dalsegno.server.schemas.executions import Execution

router = APIRouter(prefix="/executions", tags=["executions"], route_class=Route)


@router.get("/{execution}/wait", operation_id="wait_for_execution", dependencies=[needs("read")])
async def wait(
    office: TheOffice,
    request: Request,
    execution: ExecutionId,
    seconds: Annotated[float, Query(ge=0, le=60, description="How long to wait at most.")] = 20,
) -> Execution:
    """The execution as soon as it has ended, or as it stands when the time is over. A server that stops answers early:
    look at `state`, and ask again."""
    await office.client.outline(execution)  # one that does not exist is told at once
    deadlines.allow(seconds)
    with office.usage.waiting(caller_of(request)):
        await _ended_or_closing(office, execution, seconds)
    return Execution.of(await whole(office, execution))


async def _ended_or_closing(office: Office, execution: str, seconds: float) -> None:
    ending = asyncio.ensure_future(office.client.endings.over(execution))
    closing = asyncio.ensure_future(office.closing.wait())
    try:
        await asyncio.wait((ending, closing), timeout=seconds, return_when="FIRST_COMPLETED")
        if ending.done():
            ending.result()
    finally:
        ending.cancel()
        closing.cancel()
