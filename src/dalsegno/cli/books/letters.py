"""Dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from msgspec import Struct

from dalsegno.app import App
from dalsegno.cli.books.opening import PAGE, Shelf, all_told, read
from dalsegno.engine.dead import MOST_PAGES, DeadLetter, DeadLetters

if TYPE_CHECKING:
    from dalsegno.client.transport import Transport


class Letters(Protocol):
    async def all(self, limit: int) -> list[DeadLetter]: ...

    async def retry(self, id: str) -> str: ...

    async def drop(self, id: str) -> str: ...


class _Handled(Struct):
    execution: str


class LettersThere:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def all(self, limit: int) -> list[DeadLetter]:
        told = await all_told(self._transport, "dead", most=limit, pages=MOST_PAGES + limit // PAGE)
        return [read(DeadLetter, each) for each in told]

    async def retry(self, id: str) -> str:
        return await self._handle(id, "retry")

    async def drop(self, id: str) -> str:
        return await self._handle(id, "drop")

    async def _handle(self, id: str, verb: str) -> str:
        reply = await self._transport.send("POST", f"dead/{quote(id, safe=':/')}/{verb}", _Handled)
        return reply.execution


def _here(app: App) -> Letters:
    return DeadLetters(app.engine)


LETTERS: Shelf[Letters] = Shelf(_here, LettersThere)
