"""Replies as JSON: stored JSON goes out as it is, and large replies go out piece by piece.

The framework would validate every reply and write it a second time; here a reply is encoded once. What a model holds as
`msgspec.Raw` is copied.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import Any, Final

import msgspec
from fastapi import Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

PIECE: Final = 32_768
"""Bytes of a large reply that are packed and sent at a time."""
MEDIA_TYPE: Final = "application/json"


def _fields(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.__dict__
    raise TypeError(type(value).__name__)


encode = msgspec.json.Encoder(enc_hook=_fields).encode


def json_reply(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """``content``: plain values, models, and `msgspec.Raw` in either."""
    raw = encode(content)
    if len(raw) <= PIECE:
        return Response(raw, status, headers, MEDIA_TYPE)
    return streamed((raw,), status, headers)


def streamed(
    parts: Sequence[bytes], status: int = 200, headers: Mapping[str, str] | None = None
) -> StreamingResponse:
    """One JSON text, piece by piece: packing and sending all of it at once would hold up everybody else."""

    async def pieces() -> AsyncIterator[bytes]:
        for part in parts:
            view = memoryview(part)
            for start in range(0, len(part), PIECE):
                yield bytes(view[start : start + PIECE])
                await asyncio.sleep(0)

    length = str(sum(map(len, parts)))
    return StreamingResponse(pieces(), status, {**(headers or {}), "Content-Length": length}, MEDIA_TYPE)


def replying(endpoint: Callable[..., Awaitable[Any]], status: int) -> Callable[..., Awaitable[Any]]:
    """An endpoint whose result becomes a reply here, with the status and the headers that it sets."""
    parameters = signature(endpoint).parameters.values()
    response = next((each.name for each in parameters if each.annotation in ("Response", Response)), None)

    @wraps(endpoint)
    async def reply(**values: Any) -> Any:
        found = await endpoint(**values)
        if found is None or isinstance(found, Response):
            return found
        given: Response | None = values.get(response) if response is not None else None
        if given is None:
            return json_reply(found, status)
        return json_reply(found, given.status_code or status, given.headers)

    return reply
