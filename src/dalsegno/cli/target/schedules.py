"""The schedules of a command's target: those of a store opened here, or those of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

from dalsegno.cli.target.server import RemoteWorkflowApi, ServerClock, remote_workflow_api
from dalsegno.cli.target.target import Target, opened
from dalsegno.client.executions import ServerCalls
from dalsegno.client.schedules import ServerSchedules
from dalsegno.engine.schedules import ScheduleRecords, ScheduleView

Views = list[ScheduleView]


@dataclass(frozen=True, slots=True)
class RemoteScheduleStack:
    clock: ServerClock
    archive: ServerCalls


class RemoteSchedules(ServerSchedules):
    def __init__(self, api: RemoteWorkflowApi) -> None:
        super().__init__(api.transport)
        self.stack = RemoteScheduleStack(api.stack.clock, api)


Schedules: TypeAlias = ScheduleRecords | RemoteSchedules
"""The calls on schedules, with the store that views read."""


@dataclass(frozen=True, slots=True)
class ScheduleApi:
    schedules: Schedules
    start_now: Callable[[str], Awaitable[str]]
    """Start a schedule's workflow outside its times and return the execution's id."""


@asynccontextmanager
async def opened_schedules(where: Target, *, create: bool = False) -> AsyncIterator[ScheduleApi]:
    if where.server is not None:
        async with remote_schedules(where) as there:
            yield ScheduleApi(there, there.trigger)
        return
    async with opened(where.app, create=create) as client:
        await where.app.workflows.ensure_all(client)
        schedules = ScheduleRecords(client.stack, client.committer, client.definitions)

        async def start_now(name: str) -> str:
            return await client.start_ordered(await schedules.trigger(name))

        yield ScheduleApi(schedules, start_now)


@asynccontextmanager
async def remote_schedules(where: Target) -> AsyncIterator[RemoteSchedules]:
    async with remote_workflow_api(where.server or "", where.app.registry) as api:
        yield RemoteSchedules(api)
