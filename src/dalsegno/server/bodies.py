"""Bodies: read whole before a route sees the request, within a size and a time."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive

from dalsegno.errors import TooLarge, TooSlow
from dalsegno.server.settings import ServerSettings
from dalsegno.server.visit import Visit


class Departed(Exception):
    """The caller hung up in the middle of its request: there is nobody to answer."""


async def read_body(visit: Visit, receive: Receive, settings: ServerSettings, most: int) -> bytes:
    length = visit.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > most:
        raise TooLarge(_too_large(most))
    try:
        async with asyncio.timeout(settings.body_seconds):
            return await _gather(receive, most)
    except TimeoutError:
        raise TooSlow(f"the body did not arrive within {settings.body_seconds:g} s") from None


async def _gather(receive: Receive, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Departed
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise TooLarge(_too_large(most))
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(most: int) -> str:
    return f"the body is larger than {most:,} bytes"


def replayed(body: bytes, receive: Receive) -> Receive:
    """Gives the body once more; after that, what the connection says."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
