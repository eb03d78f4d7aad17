"""What executions of a server show while they run: published values and streams, resumed after a broken connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TypeVar
from urllib.parse import quote, urlencode

import httpx
import msgspec

from dalsegno.client.problems import NotThisServer
from dalsegno.client.schemas import ChunkReply, PublishedReply
from dalsegno.client.transport import Transport
from dalsegno.client.waits import END, messages
from dalsegno.engine.operations.published import Published, StreamChunk
from dalsegno.errors import TooManyRequests, Unavailable

T = TypeVar("T")


async def watch_published(
    transport: Transport, execution: str, keys: Sequence[str] = ()
) -> AsyncIterator[Published]:
    """Yield the published values, and then each change, until the execution has ended. After a broken connection only
    values that changed meanwhile are yielded.
    """
    query = f"?{urlencode([('key', key) for key in keys])}" if keys else ""
    path = f"executions/{quote(execution, safe='')}/published/stream{query}"
    retries, seen = transport.retries(), dict[str, tuple[int, float]]()
    while True:
        try:
            async with transport.open_stream(path) as response:
                retries.progress()
                async for message in messages(response.aiter_lines()):
                    if message.kind == END:
                        return
                    found = _decoded(transport, message.data, PublishedReply).published()
                    if seen.get(found.key) != (found.version, found.at):
                        seen[found.key] = found.version, found.at
                        yield found
            broken: Exception = httpx.RemoteProtocolError("the stream ended before the execution did")
        except (httpx.TransportError, Unavailable, TooManyRequests) as error:
            broken = error
        await retries.pause(broken)


async def follow_chunks(
    transport: Transport, execution: str, name: str, offset: int = 0
) -> AsyncIterator[StreamChunk]:
    """Yield the chunks from an offset on exactly once and in order, until the stream or its execution has ended."""
    retries = transport.retries()
    place = f"executions/{quote(execution, safe='')}/streams/{quote(name, safe='')}"
    while True:
        try:
            async with transport.open_stream(f"{place}?offset={offset}") as response:
                retries.progress()
                async for message in messages(response.aiter_lines()):
                    if message.kind == END:
                        return
                    chunk = _decoded(transport, message.data, ChunkReply).chunk()
                    if chunk.offset >= offset:
                        offset = chunk.offset + 1
                        yield chunk
            broken: Exception = httpx.RemoteProtocolError("the stream ended before the execution did")
        except (httpx.TransportError, Unavailable, TooManyRequests) as error:
            broken = error
        await retries.pause(broken)


def _decoded(transport: Transport, data: list[str], kind: type[T]) -> T:
    try:
        return msgspec.json.decode("\n".join(data), type=kind)
    except msgspec.DecodeError as error:
        raise NotThisServer(
            f"the server at {transport.url} streams values that this version does not understand: {error}"
        ) from None
