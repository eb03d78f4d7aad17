"""Dead letters, of a store or of a server, as data and as a list."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import quote

from msgspec import Struct
from rich.text import Text

from dalsegno.cli.opening import opened
from dalsegno.cli.output import iso, stdout
from dalsegno.cli.places import Where
from dalsegno.client.transport import Transport
from dalsegno.engine.dead import DeadKind, DeadLetter, DeadLetters

MOST = 500
"""That a server tells at once."""


class Letters(Protocol):
    async def all(self, limit: int) -> list[DeadLetter]: ...

    async def retry(self, id: str) -> str: ...

    async def drop(self, id: str) -> str: ...


@asynccontextmanager
async def letters_of(where: Where) -> AsyncIterator[Letters]:
    if where.server is None:
        async with opened(where.app):
            yield DeadLetters(where.app.engine)
        return
    from dalsegno.cli.remote.desk import remote_desk  # noqa: PLC0415 - only who speaks HTTP pays for it

    async with remote_desk(where.server, where.app.registry) as desk:
        yield ServerLetters(desk.transport)


class _LetterReply(Struct):
    id: str
    kind: DeadKind
    execution: str
    workflow: str
    reason: str
    since: datetime
    code: str | None
    tries: int

    def letter(self) -> DeadLetter:
        since = self.since.timestamp()
        return DeadLetter(
            self.id, self.kind, self.execution, self.workflow, self.reason, since, self.code, self.tries
        )


class _ListReply(Struct):
    dead: list[_LetterReply]


class _HandledReply(Struct):
    execution: str


class ServerLetters:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def all(self, limit: int) -> list[DeadLetter]:
        reply = await self._transport.get("dead", _ListReply, {"limit": min(limit, MOST)})
        return [each.letter() for each in reply.dead]

    async def retry(self, id: str) -> str:
        return await self._handle(id, "retry")

    async def drop(self, id: str) -> str:
        return await self._handle(id, "drop")

    async def _handle(self, id: str, verb: str) -> str:
        reply = await self._transport.send("POST", f"dead/{quote(id, safe=':/')}/{verb}", _HandledReply)
        return reply.execution


def as_object(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "kind": letter.kind,
        "execution": letter.execution,
        "workflow": letter.workflow,
        "reason": letter.reason,
        "code": letter.code,
        "since": iso(letter.since),
        "tries": letter.tries,
    }


def print_letters(letters: Sequence[DeadLetter]) -> None:
    """Each with its reason below: reasons are long, and what one wants to read."""
    console = stdout()
    if not letters:
        console.print("nothing is dead")
        return
    for letter in letters:
        console.print(Text(letter.id, "bold"), soft_wrap=True)
        about = f"  {letter.workflow or 'unknown workflow'}, since {iso(letter.since)}"
        console.print(Text(f"{about}, {letter.code}" if letter.code else about, "dim"), soft_wrap=True)
        console.print(Text(f"  {letter.reason}"), soft_wrap=True)
