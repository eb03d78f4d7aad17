"""Who works: the processes and remote workers of a store."""

from __future__ import annotations

from time import time
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from dalsegno.app import App
from dalsegno.cli.books.opening import Shelf, read
from dalsegno.engine.roll_call import WorkerSeen, roll_call
from dalsegno.ports.ledger import Ledger

if TYPE_CHECKING:
    from dalsegno.client.transport import Transport


class Roster(Protocol):
    async def all(self) -> tuple[list[WorkerSeen], float]:
        """And what time it is."""


class RosterHere:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def all(self) -> tuple[list[WorkerSeen], float]:
        return await roll_call(self._ledger), self._ledger.now()


class _Told(Struct):
    workers: list[dict[str, Any]]


class RosterThere:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def all(self) -> tuple[list[WorkerSeen], float]:
        told = await self._transport.get("workers", _Told)
        return [read(WorkerSeen, each) for each in told.workers], time()


def _here(app: App) -> Roster:
    return RosterHere(app.client.stack.ledger)


WORKERS: Shelf[Roster] = Shelf(_here, RosterThere)
