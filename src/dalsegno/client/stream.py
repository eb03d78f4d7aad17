"""An execution's events as they happen: server-sent events, resumed after a broken connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

import httpx
import msgspec

from dalsegno.client.problems import NotThisServer
from dalsegno.client.schemas import EventReply
from dalsegno.client.transport import Transport
from dalsegno.errors import TooManyRequests, Unavailable
from dalsegno.model.event import Event

END = "end"
_decode = msgspec.json.Decoder(EventReply).decode


class Message:
    """One server-sent event, assembled from its lines."""

    __slots__ = ("data", "id", "kind")

    def __init__(self) -> None:
        self.kind = "message"
        self.data: list[str] = []
        self.id = ""

    def add(self, line: str) -> None:
        """Add a line. Comments, which keep a connection alive, begin with a colon."""
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self.kind = value
        elif name == "data":
            self.data.append(value)
        elif name == "id":
            self.id = value


async def messages(lines: AsyncIterator[str]) -> AsyncIterator[Message]:
    """Yield messages. A message ends with an empty line; one cut off by a broken connection is dropped."""
    message = Message()
    async for line in lines:
        if line:
            message.add(line)
        elif message.data or message.kind != "message":
            yield message
            message = Message()


async def stream_events(transport: Transport, execution: str, after: int = 0) -> AsyncIterator[Event]:
    """Yield every event after that number exactly once and in order, until the execution has ended."""
    retries = transport.retries()
    path = f"executions/{quote(execution, safe='')}/stream"
    while True:
        try:
            async with transport.open_stream(path, {"Last-Event-ID": str(after)}) as response:
                retries.progress()
                async for message in messages(response.aiter_lines()):
                    if message.kind == END:
                        return
                    event = _event(transport, execution, message)
                    if event is not None and event.seq > after:
                        after = event.seq
                        yield event
            broken: Exception = httpx.RemoteProtocolError("the stream ended before the execution did")
        except (httpx.TransportError, Unavailable, TooManyRequests) as error:
            broken = error
        await retries.pause(broken)


def _event(transport: Transport, execution: str, message: Message) -> Event | None:
    """Return the event of a message; None for other kinds of messages."""
    if not message.id:
        return None
    try:
        return _decode("\n".join(message.data)).event(execution)
    except msgspec.DecodeError as error:
        raise NotThisServer(
            f"the server at {transport.url} streams events that this version does not understand: {error}"
        ) from None
