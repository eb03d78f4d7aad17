"""Replies as JSON: stored JSON goes out as it is, and large replies go out piece by piece.

The framework would validate every reply and write it a second time; here a reply is encoded once. What a model holds as
`msgspec.Raw` is copied, unless it is large: then it goes out from where it is.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import Any, Final, TypeAlias

import msgspec
from fastapi import Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from dalsegno.errors import DalSegnoError

logger = logging.getLogger("dalsegno.server")

Stored: TypeAlias = bytes | msgspec.Raw
PIECE: Final = 32_768
"""Bytes of a large reply that are packed and sent at a time."""
MEDIA_TYPE: Final = "application/json"
_MARK: Final = msgspec.Raw(json.dumps(secrets.token_hex(16)).encode())
"""Stands for a large value while the rest is encoded. Nobody can guess it, so that nothing else looks like it."""


def _fields(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.__dict__
    raise TypeError(type(value).__name__)


encode = msgspec.json.Encoder(enc_hook=_fields).encode


def json_reply(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """``content``: plain values, models, and `msgspec.Raw` in either."""
    large: list[msgspec.Raw] = []
    raw = encode(_without_large(content, large))
    if large:
        return streamed(_with_large(raw, large), status, headers)
    if len(raw) <= PIECE:
        return Response(raw, status, headers, MEDIA_TYPE)
    return streamed((raw,), status, headers)


def _without_large(content: Any, large: list[msgspec.Raw]) -> Any:
    """The same with a mark for each large value, wherever it is not in a list: encoding them would copy them."""
    if isinstance(content, msgspec.Raw):
        if memoryview(content).nbytes <= PIECE:
            return content
        large.append(content)
        return _MARK
    fields = content.__dict__ if isinstance(content, BaseModel) else content
    if isinstance(fields, dict) and any(map(_may_hold_large, fields.values())):
        return {name: _without_large(value, large) for name, value in fields.items()}
    return content


def _may_hold_large(value: Any) -> bool:
    return isinstance(value, msgspec.Raw | BaseModel | dict)


def _with_large(raw: bytes, large: Sequence[msgspec.Raw]) -> list[Stored]:
    first, *others = raw.split(bytes(_MARK))
    parts: list[Stored] = [first]
    for value, after in zip(large, others, strict=True):
        parts += (value, after)
    return parts


def streamed(
    parts: Sequence[Stored], status: int = 200, headers: Mapping[str, str] | None = None
) -> StreamingResponse:
    """One JSON text, piece by piece: packing and sending all of it at once would hold up everybody else."""

    async def pieces() -> AsyncIterator[bytes]:
        for part in parts:
            async for piece in _pieces(part):
                yield piece

    length = str(sum(memoryview(part).nbytes for part in parts))
    return StreamingResponse(pieces(), status, {**(headers or {}), "Content-Length": length}, MEDIA_TYPE)


async def _pieces(part: Stored) -> AsyncIterator[bytes]:
    view = memoryview(part)
    for start in range(0, view.nbytes, PIECE):
        yield bytes(view[start : start + PIECE])
        await asyncio.sleep(0)


def streamed_object(
    members: Mapping[str, Callable[[], Awaitable[Stored]]], hang_up: Callable[[], None]
) -> StreamingResponse:
    """An object whose members are read one after the other, while it is being sent. Where one of them is gone, the
    connection is closed before the reply is complete."""

    async def pieces() -> AsyncIterator[bytes]:
        before = b"{"
        try:
            for name, read in members.items():
                yield before + encode(name) + b":"
                async for piece in _pieces(await read()):
                    yield piece
                before = b","
        except DalSegnoError as error:
            logger.warning("a reply with large values was broken off: %s", error)
            hang_up()
            await asyncio.sleep(0)
        yield b"}" if members else b"{}"

    return StreamingResponse(pieces(), media_type=MEDIA_TYPE)


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
