"""A server's schedules as the commands see them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from dalsegno.cli.places import Where
from dalsegno.cli.remote.desk import RemoteDesk, remote_desk
from dalsegno.cli.remote.ledger import ServerClock
from dalsegno.client.calls import ServerCalls
from dalsegno.client.schedules import ServerBook


@dataclass(frozen=True, slots=True)
class RemoteBookStack:
    clock: ServerClock
    archive: ServerCalls


class RemoteBook(ServerBook):
    def __init__(self, desk: RemoteDesk) -> None:
        super().__init__(desk.transport)
        self.stack = RemoteBookStack(desk.stack.clock, desk)


@asynccontextmanager
async def remote_book(where: Where) -> AsyncIterator[RemoteBook]:
    async with remote_desk(where.server or "", where.app.registry) as desk:
        yield RemoteBook(desk)
