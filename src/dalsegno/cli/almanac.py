"""The schedules that a command is about: those of a store that is opened here, or those of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from dalsegno.cli.opening import opened
from dalsegno.cli.places import Where
from dalsegno.engine.schedule_request import NewSchedule
from dalsegno.engine.schedules import SHOWN_TIMES, ScheduleBook, ScheduleView
from dalsegno.model.execution import ExecutionView
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.ports.clock import Clock

Views = list[ScheduleView]


class BookArchive(Protocol):
    async def executions(
        self, where: ExecutionFilter, before: None = None, limit: int = 50
    ) -> list[ExecutionView]: ...


class BookStack(Protocol):
    @property
    def clock(self) -> Clock: ...

    @property
    def archive(self) -> BookArchive: ...


class Book(Protocol):
    """The engine's own book of schedules is one as it stands."""

    @property
    def stack(self) -> BookStack: ...

    async def add(
        self, new: NewSchedule, *, replace: bool = False, allow_unknown: bool = False
    ) -> ScheduleView: ...

    async def list(self) -> Views: ...

    async def describe(self, name: str, times: int = SHOWN_TIMES) -> ScheduleView: ...

    async def pause(self, name: str) -> None: ...

    async def resume(self, name: str) -> None: ...

    async def remove(self, name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Almanac:
    book: Book
    start_now: Callable[[str], Awaitable[str]]
    """Starts a schedule's workflow beside its times; the execution's id."""


@asynccontextmanager
async def almanac(where: Where, *, create: bool = False) -> AsyncIterator[Almanac]:
    if where.server is not None:
        from dalsegno.cli.remote.book import remote_book  # noqa: PLC0415 - only who speaks HTTP pays for it

        async with remote_book(where) as there:
            yield Almanac(there, there.trigger)
        return
    async with opened(where.app, create=create) as client:
        await where.app.workflows.ensure_all(client)
        book = ScheduleBook(client.stack, client.committer, client.definitions)

        async def start_now(name: str) -> str:
            return await client.start_ordered(await book.trigger(name))

        yield Almanac(book, start_now)
