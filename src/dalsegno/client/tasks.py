"""``client.tasks``: pending and running tasks of a server, settled by people."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias
from urllib.parse import quote

from msgspec import Raw, Struct, structs

from dalsegno.client.group import LARGEST_PAGE, CallGroup
from dalsegno.client.schemas import maybe_seconds
from dalsegno.client.transport import Transport
from dalsegno.core.values import decode_value, encode_value
from dalsegno.engine.operations.manual_tasks import OpenTask, TaskState

OpenTasks: TypeAlias = list[OpenTask]


class TaskReply(Struct):
    id: str
    execution: str
    workflow: str
    node: str
    task: str | None
    state: TaskState
    queue: str
    attempt: int
    due: datetime | None
    holder: str | None
    is_remote: bool
    docs: str = ""
    returns: dict[str, Any] | None = None
    input: Raw = Raw(b"null")

    def task_here(self) -> OpenTask:
        read = {"due": maybe_seconds(self.due), "input": decode_value(self.input)}
        return OpenTask(**{**structs.asdict(self), **read})


class _Page(Struct):
    items: list[TaskReply]
    next: str | None = None


class _Settled(Struct):
    id: str


class ServerTasks:
    """Calls about tasks, over a transport and on its event loop."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(
        self, execution: str | None = None, queue: str | None = None, limit: int | None = None
    ) -> OpenTasks:
        found: list[OpenTask] = []
        cursor: str | None = None
        while True:
            size = LARGEST_PAGE if limit is None else min(LARGEST_PAGE, limit - len(found))
            asked = {"execution": execution, "queue": queue, "limit": size, "cursor": cursor}
            page = await self._transport.get("tasks", _Page, asked)
            found += [each.task_here() for each in page.items]
            cursor = page.next
            if cursor is None or (limit is not None and len(found) >= limit):
                return found[:limit]

    async def get(self, id: str) -> OpenTask:
        return (await self._transport.get(_path(id), TaskReply)).task_here()

    async def complete(
        self, id: str, output: Any = None, *, by: str | None = None, reason: str | None = None
    ) -> None:
        carried = output if isinstance(output, Raw) else Raw(encode_value(output, "the output"))
        await self._settle(id, "complete", {"output": carried, "by": by, "reason": reason})

    async def fail(
        self, id: str, message: str, *, retry: bool = False, by: str | None = None, reason: str | None = None
    ) -> None:
        await self._settle(id, "fail", {"message": message, "retry": retry, "by": by, "reason": reason})

    async def skip(self, id: str, *, by: str | None = None, reason: str | None = None) -> None:
        await self._settle(id, "skip", {"by": by, "reason": reason})

    async def requeue(self, id: str, *, by: str | None = None, reason: str | None = None) -> None:
        await self._settle(id, "requeue", {"by": by, "reason": reason})

    async def _settle(self, id: str, action: str, body: Mapping[str, Any]) -> None:
        await self._transport.send("POST", f"{_path(id)}/by-hand/{action}", _Settled, body)


def _path(id: str) -> str:
    return f"tasks/{quote(id, safe='')}"


class ClientTasks(CallGroup):
    """Tasks of all executions."""

    __slots__ = ()

    def _tasks(self) -> ServerTasks:
        return ServerTasks(self._transport)

    def list(
        self, execution: str | None = None, *, queue: str | None = None, limit: int | None = None
    ) -> OpenTasks:
        """Returns pending and running tasks and nodes, those of the newest execution first."""
        return self._call(self._tasks().list(execution, queue, limit))

    async def alist(
        self, execution: str | None = None, *, queue: str | None = None, limit: int | None = None
    ) -> OpenTasks:
        return await self._acall(self._tasks().list(execution, queue, limit))

    def get(self, id: str) -> OpenTask:
        """Returns one open task with its input. Raises Conflict if it has ended."""
        return self._call(self._tasks().get(id))

    async def aget(self, id: str) -> OpenTask:
        return await self._acall(self._tasks().get(id))

    def complete(
        self, id: str, output: Any = None, *, by: str | None = None, reason: str | None = None
    ) -> None:
        """Completes the task with this output. Raises Conflict if the task has ended, InvalidInput if the output
        does not match; neither changes anything."""
        self._call(self._tasks().complete(id, output, by=by, reason=reason))

    async def acomplete(
        self, id: str, output: Any = None, *, by: str | None = None, reason: str | None = None
    ) -> None:
        await self._acall(self._tasks().complete(id, output, by=by, reason=reason))

    def fail(
        self, id: str, message: str, *, retry: bool = False, by: str | None = None, reason: str | None = None
    ) -> None:
        """Fails the task; with ``retry`` its retry policy decides what follows."""
        self._call(self._tasks().fail(id, message, retry=retry, by=by, reason=reason))

    async def afail(
        self, id: str, message: str, *, retry: bool = False, by: str | None = None, reason: str | None = None
    ) -> None:
        await self._acall(self._tasks().fail(id, message, retry=retry, by=by, reason=reason))

    def skip(self, id: str, *, by: str | None = None, reason: str | None = None) -> None:
        """Skips the task: a node of a graph is SKIPPED; a script or a Python workflow gets null."""
        self._call(self._tasks().skip(id, by=by, reason=reason))

    async def askip(self, id: str, *, by: str | None = None, reason: str | None = None) -> None:
        await self._acall(self._tasks().skip(id, by=by, reason=reason))

    def requeue(self, id: str, *, by: str | None = None, reason: str | None = None) -> None:
        """Takes the task from its worker and offers it again."""
        self._call(self._tasks().requeue(id, by=by, reason=reason))

    async def arequeue(self, id: str, *, by: str | None = None, reason: str | None = None) -> None:
        await self._acall(self._tasks().requeue(id, by=by, reason=reason))
