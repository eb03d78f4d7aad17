"""``client.limits`` and ``client.dead_letters``, and the workers of a server: calls for operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

from msgspec import Struct

from dalsegno.client.group import LARGEST_PAGE, CallGroup, read_all, read_as
from dalsegno.client.transport import Transport
from dalsegno.engine.operations.dead_letters import MOST_PAGES, DeadLetter
from dalsegno.engine.operations.unfinished_versions import UnfinishedVersion
from dalsegno.engine.worker.directory import WorkerSeen
from dalsegno.handle import Handle
from dalsegno.model.execution import ExecutionKind
from dalsegno.model.limits import Allowance, LimitView, parse_rate

Limits: TypeAlias = list[LimitView]
DeadLetters: TypeAlias = list[DeadLetter]


class ClientLimits(CallGroup):
    """Limits by key, as set by operators."""

    __slots__ = ()

    def list(self, limit: int | None = None) -> Limits:
        """Returns keys with a limit, with slots in use, or with waiting work; at most ``limit``, by name."""
        return self._call(self._list(limit))

    async def alist(self, limit: int | None = None) -> Limits:
        return await self._acall(self._list(limit))

    def get(self, key: str) -> LimitView:
        """Returns the current state of one key. An unused key has no limit and no slots in use."""
        return self._call(self._get(key))

    async def aget(self, key: str) -> LimitView:
        return await self._acall(self._get(key))

    def set(self, key: str, *, concurrency: int | None = None, rate: str | None = None) -> LimitView:
        """Sets a limit, at once in every process; it takes precedence over definitions: ``concurrency`` concurrent
        runs, ``rate`` (such as ``10/s``) starts. Running work continues. Needs the scope ``admin``."""
        return self._call(self._set(key, concurrency, rate))

    async def aset(self, key: str, *, concurrency: int | None = None, rate: str | None = None) -> LimitView:
        return await self._acall(self._set(key, concurrency, rate))

    def remove(self, key: str) -> None:
        """Removes a limit; the limits in definitions apply again. Raises NotFound if no limit is set."""
        self._call(self._remove(key))

    async def aremove(self, key: str) -> None:
        await self._acall(self._remove(key))

    # -- internal ---------------------------------------------------------------------------------------------

    async def _list(self, limit: int | None) -> Limits:
        return [
            _limit(each) for each in await read_all(self._transport, "limits", dict[str, Any], limit=limit)
        ]

    async def _get(self, key: str) -> LimitView:
        return _limit(await self._transport.get(_limit_path(key), dict[str, Any]))

    async def _set(self, key: str, concurrency: int | None, rate: str | None) -> LimitView:
        body = {"concurrency": concurrency, "rate": rate}
        return _limit(
            await self._transport.send("PUT", _limit_path(key), dict[str, Any], body, repeatable=True)
        )

    async def _remove(self, key: str) -> None:
        await self._transport.send("DELETE", _limit_path(key), Any)


class ClientDeadLetters(CallGroup):
    """Work that cannot continue without intervention."""

    __slots__ = ()

    def list(self, limit: int = 100) -> DeadLetters:
        """Returns orders that cannot be delivered, steps that no worker can run, clean-ups that did not end, and
        executions that failed because of the system; at most ``limit``."""
        return self._call(self._list(limit))

    async def alist(self, limit: int = 100) -> DeadLetters:
        return await self._acall(self._list(limit))

    def retry(self, id: str) -> Handle[Any]:
        """Retries a dead letter. A failed execution is retried as a new one, whose handle is returned."""
        return self._call(self._handle(id, "retry"))

    async def aretry(self, id: str) -> Handle[Any]:
        return await self._acall(self._handle(id, "retry"))

    def drop(self, id: str) -> Handle[Any]:
        """Drops a dead letter: an order is not carried out, an execution is cancelled, a failed one is no longer
        listed."""
        return self._call(self._handle(id, "drop"))

    async def adrop(self, id: str) -> Handle[Any]:
        return await self._acall(self._handle(id, "drop"))

    # -- internal ---------------------------------------------------------------------------------------------

    async def _list(self, limit: int) -> DeadLetters:
        most_pages = MOST_PAGES + limit // LARGEST_PAGE
        return await read_all(self._transport, "dead", DeadLetter, limit=limit, most_pages=most_pages)

    async def _handle(self, id: str, verb: str) -> Handle[Any]:
        reply = await self._transport.send("POST", f"dead/{quote(id, safe=':/')}/{verb}", _Handled)
        return Handle(self._client, reply.execution)


class _Handled(Struct):
    execution: str


def _limit(reply: Mapping[str, Any]) -> LimitView:
    rate = reply["rate"]
    rule = Allowance(reply["concurrency"], parse_rate(rate) if rate is not None else None)
    return LimitView(reply["key"], rule, rule, reply["in_use"], reply["waiting"], reply["opens_at"])


def _limit_path(key: str) -> str:
    return f"limits/{quote(key, safe='')}"


# -- workers, and the versions that they need to run -----------------------------------------------------------


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
