"""Replies as JSON: stored JSON goes out as it is, and large replies go out piece by piece.

The framework would validate every reply and write it a second time; here a reply is encoded once. What a model holds as
`msgspec.Raw` is copied, unless it is large: then it goes out from where it is.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import Any, Final, TypeAlias

import msgspec
from fastapi import Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from dalsegno.errors import DalSegnoError
from dalsegno.server import deadlines

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

    left = _Left(parts)

    async def pieces() -> AsyncIterator[bytes]:
        while piece := left.take():
            yield piece
            await asyncio.sleep(0)

    length = str(sum(memoryview(part).nbytes for part in parts))
    return StreamingResponse(pieces(), status, {**(headers or {}), "Content-Length": length}, MEDIA_TYPE)


class _Left:
    """What is still to be sent, until the call is over. A reply that is broken off leaves its frames to the garbage
    collector, which may take long to come: they lead here, and to none of the values."""

    def __init__(self, parts: Sequence[Stored]) -> None:
        self._parts = deque(parts)
        self._start = 0
        deadlines.at_end(self._parts.clear)

    def add(self, part: Stored) -> None:
        self._parts.append(part)

    def take(self) -> bytes:
        """The next piece; nothing at the end."""
        while self._parts:
            start, self._start = self._start, self._start + PIECE
            if piece := bytes(memoryview(self._parts[0])[start : self._start]):
                return piece
            self._parts.popleft()
            self._start = 0
        return b""


def streamed_object(
    members: Mapping[str, Callable[[], Awaitable[Stored]]], hang_up: Callable[[], None]
) -> StreamingResponse:
    """An object whose members are read one after the other, while it is being sent. Where one of them is gone, the
    connection is closed before the reply is complete."""

    left = _Left(())

    async def pieces() -> AsyncIterator[bytes]:
        before = b"{"
        try:
            for name, read in members.items():
                yield before + encode(name) + b":"
                left.add(await read())
                while piece := left.take():
                    yield piece
                    await asyncio.sleep(0)
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
