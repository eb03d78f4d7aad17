"""``/v1/executions/{id}/published`` and ``/v1/executions/{id}/streams``: what an execution shows while it runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request

from dalsegno.model.published import LOG, LONGEST_NAME, check_name
from dalsegno.server.auth.authentication import caller_of, needs
from dalsegno.server.http.routing import Route
from dalsegno.server.routes.executions import ExecutionId
from dalsegno.server.routes.streams import HIGHEST, event_stream
from dalsegno.server.schemas.published import (
    ChunkInfo,
    ChunkPage,
    PublishedInfo,
    PublishedPage,
    StreamInfo,
    StreamList,
)
from dalsegno.server.services import Services
from dalsegno.server.streams.published import chunk_stream, published_stream
from dalsegno.server.streams.stream import HEARTBEAT_EVERY, EventStream, open_stream

router = APIRouter(tags=["live"], route_class=Route)

MOST_CHUNKS = 1000
StreamName = Annotated[
    str,
    Path(
        max_length=LONGEST_NAME,
        description=f"The name of the stream; `{LOG}` is the log.",
        examples=["answer"],
    ),
]
Offset = Annotated[int, Query(ge=0, le=HIGHEST, description="The first chunk that is wanted.")]


@router.get("/executions/{execution}/published", operation_id="get_published", dependencies=[needs("read")])
async def published(services: Services, execution: ExecutionId) -> PublishedPage:
    """Returns what an execution has published: of each key the newest value."""
    rows = await services.client.followers.rows(execution)
    return PublishedPage(values=[PublishedInfo.of(row) for row in rows])


@router.get(
    "/executions/{execution}/published/stream",
    operation_id="stream_published",
    dependencies=[needs("read")],
    status_code=200,
    response_class=EventStream,
    responses=event_stream(
        'event: published\ndata: {"key":"stage","value":"packing","version":2,"at":"2026-01-05T09:00:00Z"}\n\n'
        "event: end\ndata: {}\n\n"
    ),
)
async def stream(
    services: Services,
    request: Request,
    execution: ExecutionId,
    key: Annotated[
        list[str] | None, Query(max_length=100, description="Only these keys; repeatable.")
    ] = None,
) -> EventStream:
    """Streams the published values that there are, and then their changes, until the execution has ended.

    The kind is `published`, or `progress` for the keys `progress` and `progress/…`. Of quick changes a reader may get
    only the last. After an interruption, the newest values are sent again.
    """
    await services.client.outline(execution)
    over = open_stream(services, caller_of(request))
    content = published_stream(
        services.client.followers, execution, key or (), services.closing, HEARTBEAT_EVERY
    )
    return EventStream(content, over)


@router.get("/executions/{execution}/streams", operation_id="list_streams", dependencies=[needs("read")])
async def streams(services: Services, execution: ExecutionId) -> StreamList:
    """Lists the streams of an execution, its log among them."""
    found = await services.client.followers.streams(execution)
    return StreamList(streams=[StreamInfo.of(view) for view in found])


@router.get(
    "/executions/{execution}/streams/{name}",
    operation_id="follow_stream",
    dependencies=[needs("read")],
    status_code=200,
    response_class=EventStream,
    responses=event_stream(
        'id: 0\nevent: chunk\ndata: {"offset":0,"value":"Once upon","task":"answer","attempt":1,"restarts":false,'
        '"at":"2026-01-05T09:00:00Z"}\n\nevent: end\ndata: {"next":1}\n\n'
    ),
)
async def follow(
    services: Services,
    request: Request,
    execution: ExecutionId,
    name: StreamName,
    offset: Offset = 0,
    last_event_id: Annotated[
        int | None,
        Header(
            alias="Last-Event-ID",
            ge=0,
            le=HIGHEST,
            description="The last chunk seen; counts more than `offset`.",
        ),
    ] = None,
) -> EventStream:
    """Streams the chunks of a stream once and in order, from any offset on, while it grows.

    Each chunk has its offset as `id`. After an interruption, continue with the last one as `Last-Event-ID`. When the
    stream is closed, or its execution has ended, `event: end` is sent. A stream that does not exist yet is waited for.
    """
    await services.client.outline(execution)
    first = last_event_id + 1 if last_event_id is not None else offset
    over = open_stream(services, caller_of(request))
    content = chunk_stream(
        services.client.followers, execution, _named(name), first, services.closing, HEARTBEAT_EVERY
    )
    return EventStream(content, over)


@router.get(
    "/executions/{execution}/streams/{name}/chunks",
    operation_id="list_chunks",
    dependencies=[needs("read")],
)
async def chunks(
    services: Services,
    execution: ExecutionId,
    name: StreamName,
    offset: Offset = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_CHUNKS, description="Maximum number of chunks.")] = 100,
) -> ChunkPage:
    """Returns chunks of a stream that there are now, page by page. A stream that does not exist has none."""
    followers = services.client.followers
    heads = {view.name: view for view in await followers.streams(execution)}
    found = await followers.page(execution, _named(name), offset, limit)
    after = found[-1].offset + 1 if found else offset
    head = heads.get(name)
    is_last = head is not None and head.closed and after >= head.length
    return ChunkPage(chunks=[ChunkInfo.of(chunk) for chunk in found], next=after, closed=is_last)


def _named(name: str) -> str:
    return check_name(name, "stream's name")
