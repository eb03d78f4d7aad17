"""Base of the call groups of ``dalsegno.Client``, such as ``client.keys``, and the reading of lists."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from datetime import datetime
from itertools import count
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from dalsegno.client.executions import ServerCalls
from dalsegno.client.transport import Transport
from dalsegno.handle import Runtime

T = TypeVar("T")

LARGEST_PAGE = 500
"""Largest page of a server's list."""


class ServerRuntime(Runtime, Protocol):
    """The client of a group of calls."""

    @property
    def client(self) -> ServerCalls: ...


class CallGroup:
    """A group of calls. Each call has an async twin with the prefix ``a``."""

    __slots__ = ("_client",)

    def __init__(self, client: ServerRuntime) -> None:
        self._client = client

    @property
    def _transport(self) -> Transport:
        return self._client.client.transport

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._client.host.call(work)

    async def _acall(self, work: Coroutine[Any, Any, T]) -> T:
        return await self._client.host.acall(work)


class _Page(Struct):
    items: list[dict[str, Any]]
    next: str | None = None


async def read_all(
    transport: Transport,
    path: str,
    kind: type[T],
    query: Mapping[str, Any] | None = None,
    limit: int | None = None,
    most_pages: int | None = None,
) -> list[T]:
    """Read page by page: at most ``limit`` items, from at most ``most_pages`` pages."""
    found: list[T] = []
    cursor: str | None = None
    asked = count()
    while (limit is None or len(found) < limit) and (most_pages is None or next(asked) < most_pages):
        size = LARGEST_PAGE if limit is None else min(LARGEST_PAGE, limit - len(found))
        page = await transport.get(path, _Page, {**(query or {}), "limit": size, "cursor": cursor})
        found += [read_as(kind, each) for each in page.items]
        cursor = page.next
        if cursor is None:
            break
    return found


def read_as(kind: type[T], reply: Mapping[str, Any]) -> T:
    """Convert a reply. A server writes times as text; the values here have them in seconds."""
    return msgspec.convert({name: _value(name, each) for name, each in reply.items()}, kind)


def _value(name: str, value: Any) -> Any:
    is_moment = (name.endswith("_at") or name in ("since", "grace_until")) and isinstance(value, str)
    return datetime.fromisoformat(value).timestamp() if is_moment else value
