"""``/v1/executions/{id}/stream`` and ``/v1/stream``: live events."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request

from dalsegno.server.auth.authentication import caller_of, needs
from dalsegno.server.http.routing import Route
from dalsegno.server.routes.executions import ExecutionId
from dalsegno.server.services import Services
from dalsegno.server.streams.stream import (
    EventStream,
    broadcast_of,
    change_stream,
    changes_of,
    check_seen,
    execution_stream,
    open_stream,
)

router = APIRouter(tags=["live"], route_class=Route)

HIGHEST = 2**53


def event_stream(example: str) -> dict[int | str, dict[str, Any]]:
    content = {"text/event-stream": {"schema": {"type": "string"}, "example": example}}
    return {200: {"description": "Server-sent events, until the stream ends.", "content": content}}


@router.get(
    "/executions/{execution}/stream",
    operation_id="stream_execution",
    dependencies=[needs("read")],
    status_code=200,
    response_class=EventStream,
    responses=event_stream(
        'id: 1\nevent: ExecutionStarted\ndata: {"seq":1,"kind":"ExecutionStarted","at":"2026-01-05T09:00:00Z"}\n\n'
        'event: end\ndata: {"state":"COMPLETED","last":1}\n\n'
    ),
)
async def stream(
    services: Services,
    request: Request,
    execution: ExecutionId,
    after: Annotated[int, Query(ge=0, le=HIGHEST, description="Number of the last event seen.")] = 0,
    last_event_id: Annotated[
        int | None,
        Header(alias="Last-Event-ID", ge=0, le=HIGHEST, description="The same; counts more than `after`."),
    ] = None,
) -> EventStream:
    """Streams every event of an execution once and in order, from any number on, live.

    Each event has its number as `id`, its kind as `event` and its JSON as `data`. After an interruption, continue
    with the last number as `Last-Event-ID`: no event is missing or repeated, even if servers were restarted
    meanwhile. Published values and progress come as `published` and `progress`, without a number: first those that
    there are, then their changes. After the last event of an ended execution, `event: end` is sent and the stream is
    closed; a stream
    that closes without it was interrupted. A comment is sent after every 15 seconds of silence.
    """
    seen = last_event_id if last_event_id is not None else after
    view = await services.client.outline(execution)
    check_seen(view, seen)
    over = open_stream(services, caller_of(request))
    followers = services.client.followers
    return EventStream(execution_stream(broadcast_of(services), view, seen, followers=followers), over)


@router.get(
    "/stream",
    operation_id="stream_changes",
    dependencies=[needs("read")],
    status_code=200,
    response_class=EventStream,
    responses=event_stream(
        'event: ExecutionStarted\ndata: {"kind":"ExecutionStarted","execution":"0198f3c2a1b4d6e8f0a2b4c6d8e0f2a4",'
        '"workflow":"checkout","state":"RUNNING","at":1767603600.0}\n\n'
    ),
)
async def changes(
    services: Services,
    request: Request,
    workflow: Annotated[str | None, Query(max_length=200, description="Only executions of this one.")] = None,
) -> EventStream:
    """Streams state changes of all executions from now on: started, paused, resumed, completed, failed, cancelled.

    For overviews, best effort: changes by other processes arrive a few seconds late (pauses and resumptions not at
    all), `event: lost` counts the changes dropped for a slow reader, and changes are not kept for later. The
    history of one execution has none of these limits.
    """
    freed = open_stream(services, caller_of(request))
    listening = changes_of(services)
    try:
        listener = await listening.open(workflow)
    except BaseException:
        freed()
        raise

    def over() -> None:
        listening.close(listener)
        freed()

    return EventStream(change_stream(listening, listener), over)
