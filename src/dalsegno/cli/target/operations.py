"""Dead letters, open tasks and workers, on a store opened here or on a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING, Any, TypeAlias

from dalsegno.app import App
from dalsegno.cli.target.administration import PAGE, Administration
from dalsegno.engine.operations.dead_letters import DeadLetter, DeadLetters
from dalsegno.engine.operations.manual_tasks import ByHand, OpenTask
from dalsegno.engine.worker.directory import WorkerSeen, list_workers
from dalsegno.errors import InvalidInput, NotFound, OperatorError
from dalsegno.handle import Handle
from dalsegno.ports.messages import DeadMessage

if TYPE_CHECKING:
    from dalsegno.client import Client
    from dalsegno.client.tasks import ClientTasks


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """A message that a broker keeps because it could not be taken in."""

    server: str
    message: DeadMessage


@dataclass(frozen=True, slots=True)
class KeptMessages:
    found: Sequence[KeptMessage] = ()
    problems: Sequence[str] = ()
    """Why a broker could not be asked, as sentences."""


class LettersHere:
    def __init__(self, app: App) -> None:
        self._app = app
        self._letters = DeadLetters(app.engine)

    async def alist(self, limit: int) -> list[DeadLetter]:
        return await self._letters.all(limit)

    async def aretry(self, id: str) -> Handle[Any]:
        return Handle(self._app, await self._letters.retry(id))

    async def adrop(self, id: str) -> Handle[Any]:
        return Handle(self._app, await self._letters.drop(id))

    async def amessages(self, limit: int) -> KeptMessages | None:
        """Return the newest messages that the brokers keep, newest first; None if there is no broker to ask."""
        if not self._letters.stack.dead_letters:
            return None
        found: list[KeptMessage] = []
        problems: list[str] = []
        for place in self._letters.stack.dead_letters:
            try:
                found += [KeptMessage(place.name, message) for message in await place.list(limit)]
            except OperatorError as error:
                problems.append(str(error))
        found.sort(key=lambda each: each.message.at, reverse=True)
        return KeptMessages(found[:limit], problems)

    async def amessage(self, id: str) -> KeptMessage:
        for place in self._letters.stack.dead_letters:
            message = await place.get(id)
            if message is not None:
                return KeptMessage(place.name, message)
        raise NotFound(f"no broker keeps a message with the id {id!r}; `dalsegno dead ls` lists them")

    async def arequeue(self, id: str) -> KeptMessage:
        kept = await self.amessage(id)
        for place in self._letters.stack.dead_letters:
            if place.name == kept.server and await place.requeue(id):
                return kept
        raise NotFound(f"the message {id!r} is not there any more: it was taken meanwhile")


class LettersThere:
    """The dead letters of a server. It hands out no messages of brokers."""

    def __init__(self, client: Client) -> None:
        self._letters = client.dead_letters

    async def alist(self, limit: int) -> list[DeadLetter]:
        return await self._letters.alist(limit)

    async def aretry(self, id: str) -> Handle[Any]:
        return await self._letters.aretry(id)

    async def adrop(self, id: str) -> Handle[Any]:
        return await self._letters.adrop(id)

    async def amessages(self, limit: int) -> KeptMessages | None:
        return None

    async def amessage(self, id: str) -> KeptMessage:
        raise InvalidInput(
            "a server hands out no messages of its broker; give --store and --broker instead of --server"
        )

    arequeue = amessage


Letters: TypeAlias = LettersHere | LettersThere
LETTERS: Administration[Letters] = Administration(LettersHere, LettersThere)


class TasksHere:
    def __init__(self, app: App) -> None:
        self._tasks = ByHand(app.engine)

    async def alist(self, execution: str | None, *, queue: str | None, limit: int | None) -> list[OpenTask]:
        found: list[OpenTask] = []
        after: str | None = None
        while limit is None or len(found) < limit:
            page = await self._tasks.page(
                execution, queue, after, PAGE if limit is None else limit - len(found)
            )
            found += page.tasks
            after = page.after
            if after is None:
                break
        return found[:limit]

    async def aget(self, id: str) -> OpenTask:
        return await self._tasks.show(id)

    async def acomplete(
        self, id: str, output: Any = None, *, by: str | None = None, reason: str | None = None
    ) -> None:
        await self._tasks.complete(id, output, by=by, reason=reason)

    async def afail(
        self, id: str, message: str, *, retry: bool = False, by: str | None = None, reason: str | None = None
    ) -> None:
        await self._tasks.fail(id, message, retry=retry, by=by, reason=reason)

    async def askip(self, id: str, *, by: str | None = None, reason: str | None = None) -> None:
        await self._tasks.skip(id, by=by, reason=reason)

    async def arequeue(self, id: str, *, by: str | None = None, reason: str | None = None) -> None:
        await self._tasks.requeue(id, by=by, reason=reason)


OpenTasks: TypeAlias = "TasksHere | ClientTasks"
OPEN_TASKS: Administration[OpenTasks] = Administration(TasksHere, lambda client: client.tasks)


class LocalWorkerRegistry:
    def __init__(self, app: App) -> None:
        self._ledger = app.client.stack.ledger

    async def all(self) -> tuple[list[WorkerSeen], float]:
        """Return the workers and the current time of the store."""
        return await list_workers(self._ledger), self._ledger.now()


class RemoteWorkerRegistry:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def all(self) -> tuple[list[WorkerSeen], float]:
        return await self._client.aworkers(), time()


WorkerRegistry: TypeAlias = LocalWorkerRegistry | RemoteWorkerRegistry
WORKERS: Administration[WorkerRegistry] = Administration(LocalWorkerRegistry, RemoteWorkerRegistry)
