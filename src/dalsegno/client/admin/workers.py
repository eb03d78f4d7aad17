"""Workers of a server's store, and the versions that they need to run."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from dalsegno.client.group import read_as
from dalsegno.client.transport import Transport
from dalsegno.engine.operations.unfinished_versions import UnfinishedVersion
from dalsegno.engine.worker.directory import WorkerSeen
from dalsegno.model.execution import ExecutionKind


class _Workers(Struct):
    workers: list[dict[str, Any]]


class _Task(Struct):
    name: str
    queue: str | None = None


class _Unfinished(Struct):
    workflow: str
    version: int
    kind: ExecutionKind
    hash: str
    executions: int
    tasks: list[_Task]

    def version_in_flight(self) -> UnfinishedVersion:
        tasks = {(task.name, task.queue) for task in self.tasks}
        return UnfinishedVersion(self.hash, self.workflow, self.version, self.kind, self.executions, tasks)


async def worker_list(transport: Transport) -> list[WorkerSeen]:
    return [read_as(WorkerSeen, each) for each in (await transport.get("workers", _Workers)).workers]


async def unfinished_versions(transport: Transport) -> list[UnfinishedVersion]:
    found = await transport.get("programs", list[_Unfinished])
    return [each.version_in_flight() for each in found]
