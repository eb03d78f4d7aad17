"""``/v1/executions/{id}/wait`` and ``/v1/executions/endings``: an answer when one execution, or any of many, ends."""

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
from dalsegno.server.schemas.executions import EndingsRequest, Execution
from dalsegno.server.stream import EventStream, endings_stream

router = APIRouter(prefix="/executions", tags=["executions"], route_class=Route)

ENDINGS_EXAMPLE = (
    'event: checked\ndata: {"open":1}\n\n'
    'event: ended\ndata: {"id":"0198f3c2a1b4d6e8f0a2b4c6d8e0f2a4","workflow":"checkout","version":1,"kind":"graph",'
    '"state":"COMPLETED","created_at":"2026-01-05T09:00:00Z","output":42}\n\n'
    'event: end\ndata: {"open":0}\n\n'
)


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


@router.post(
    "/endings",
    operation_id="stream_endings",
    dependencies=[needs("read")],
    status_code=200,
    response_class=EventStream,
    responses={
        200: {
            "description": "Server-sent events, until the stream ends.",
            "content": {"text/event-stream": {"schema": {"type": "string"}, "example": ENDINGS_EXAMPLE}},
        }
    },
)
async def endings(office: TheOffice, request: Request, asked: EndingsRequest) -> EventStream:
    """Waits for up to 10,000 executions over one connection.

    Each one that ends, or has ended, comes as `event: ended` with the execution in `data`, as from `wait`. One that
    does not exist comes as `event: refused` with its `id` and the `problem`. `event: checked` follows once all were
    looked at. `event: end` comes when none is left or `seconds` are over; a stream that is closed without it was
    interrupted. Ask again for those that have not ended. It counts as one open stream of its key. Silence is filled
    with a comment every 15 seconds.
    """
    over = office.usage.open_stream(caller_of(request))
    return EventStream(endings_stream(office, asked.executions, asked.seconds), over)


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
