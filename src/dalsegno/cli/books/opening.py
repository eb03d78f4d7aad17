"""Which book a command writes in, and how a server's answers are read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from dalsegno.app import App
from dalsegno.cli.opening import opened
from dalsegno.cli.options import Place
from dalsegno.cli.places import Where, where_to

if TYPE_CHECKING:
    from dalsegno.client.transport import Transport

B = TypeVar("B")
T = TypeVar("T")

PAGE = 500
"""What a server tells at once."""


@dataclass(frozen=True, slots=True)
class Shelf(Generic[B]):
    """One kind of book: ``here`` opens that of a store, ``there`` that of a server."""

    here: Callable[[App], B]
    there: Callable[[Transport], B]
    makes_store: bool = False
    """Whether a store that is not there is made."""

    def use(self, place: Place, work: Callable[[B], Awaitable[T]], *, make_store: bool = False) -> T:
        """Runs to its end what a command does with the book."""

        async def run() -> T:
            where = where_to(place.store, place.server, place.app)
            async with self.opened(where, make_store=make_store) as book:
                return await work(book)

        return asyncio.run(run())

    @asynccontextmanager
    async def opened(self, where: Where, *, make_store: bool = False) -> AsyncIterator[B]:
        if where.server is None:
            async with opened(where.app, create=make_store or self.makes_store):
                yield self.here(where.app)
            return
        from dalsegno.cli.remote.desk import remote_transport  # noqa: PLC0415 - only who speaks HTTP pays for it

        async with remote_transport(where.server) as transport:
            yield self.there(transport)


class _Page(Struct):
    items: list[dict[str, Any]]
    next: str | None = None


async def all_told(
    transport: Transport,
    path: str,
    query: Mapping[str, Any] | None = None,
    most: int | None = None,
    pages: int | None = None,
) -> list[dict[str, Any]]:
    """Page after page; at most ``most`` things, of at most so many ``pages``."""
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    asked_for = count()
    while (most is None or len(found) < most) and (pages is None or next(asked_for) < pages):
        size = PAGE if most is None else min(PAGE, most - len(found))
        asked = {**(query or {}), "limit": size, "cursor": cursor}
        page = await transport.get(path, _Page, asked)
        found += page.items
        cursor = page.next
        if cursor is None:
            break
    return found


def read(kind: type[T], told: Mapping[str, Any]) -> T:
    """What a server tells of a thing, as the thing: moments are texts there and seconds here."""
    return msgspec.convert({name: _here(name, value) for name, value in told.items()}, kind)


def _here(name: str, value: Any) -> Any:
    is_moment = (name.endswith("_at") or name == "since") and isinstance(value, str)
    return datetime.fromisoformat(value).timestamp() if is_moment else value
