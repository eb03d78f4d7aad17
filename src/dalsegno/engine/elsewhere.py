"""Code that this process lacks and a living worker has: what needs it is left to that worker, and does not fail here.

Two programs on one store, or two versions of one program while it is deployed, know different tasks and functions. Each
worker tells in its heartbeats what it can run.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from dalsegno.engine.raised import PassesThrough
from dalsegno.engine.seen_tasks import SeenTasks
from dalsegno.engine.serving import Colleagues
from dalsegno.engine.transactions import UsesTransactions
from dalsegno.errors import BadConfiguration, OperatorError
from dalsegno.model.definition import Definition
from dalsegno.model.suggestion import listed
from dalsegno.ports.node import NodeContext

_TASK = "task:"
_VERSION = "version:"
_KEY = "key:"


def task_offer(name: str) -> str:
    return _TASK + name


def version_offer(hash: str) -> str:
    """Of a Python workflow: the worker's own program has exactly this one."""
    return _VERSION + hash


def key_offer(id: str) -> str:
    """Of a secret key: the worker can check seals that were made with it."""
    return _KEY + id


class RunsElsewhere(PassesThrough):
    """A living worker that serves the token's queue has, or may have, what this process lacks."""


class ComesBack(RunsElsewhere):
    """No living worker has it, and one that had it was there a while ago."""


class OwnWorkflows(Protocol):
    """The Python workflows of this process's program."""

    @property
    def versions(self) -> Container[str]:
        """Their content hashes."""

    def is_newer(self, definition: Definition) -> bool:
        """Whether it is a later version of one of them."""


class Elsewhere:
    def __init__(
        self, colleagues: Colleagues, own: OwnWorkflows, seen_tasks: SeenTasks | None = None
    ) -> None:
        """``seen_tasks``: None where it is not remembered what workers of other processes had."""
        self.colleagues = colleagues
        self._own = own
        self._seen_tasks = seen_tasks

    def has_version(self, hash: str) -> bool:
        """Whether it is that of this process's own program."""
        return hash in self._own.versions

    async def look_for_task(self, name: str, run: NodeContext) -> None:
        """Raises RunsElsewhere if the task could run there, now or soon."""
        if not isinstance(run, UsesTransactions):
            return
        queue = run.own_lease.queue
        seen = self._seen_tasks
        if seen is not None and seen.was_away(name, queue):
            raise _comes_back(name, queue)
        if await self._has(task_offer(name), queue):
            raise RunsElsewhere(f"task '{name}' is not registered in this process; another worker has it")
        with _asking(task_offer(name)):
            if seen is not None and await seen.was_there(name, queue):
                raise _comes_back(name, queue)

    async def look_for_version(self, definition: Definition, lacking: frozenset[str], queue: str) -> None:
        """A turn of another version than that of the program at hand, which lacks something it uses, is left to those
        who have it: raises RunsElsewhere. A newer one waits for them if there is none: raises BadConfiguration. An
        older one goes on, and may not need what was taken away."""
        uses = listed(sorted(lacking))
        if await self._has(version_offer(definition.hash), queue):
            raise RunsElsewhere(
                f"this version of the workflow uses {uses}, which the program of this process does not have; another"
                " worker has the version"
            )
        if self._own.is_newer(definition):
            raise BadConfiguration(
                f"version {definition.version} of '{definition.name}' uses {uses}, which the older program of this"
                " process does not have; start a worker with the newer one"
            )

    async def look_for_key(self, id: str, queue: str) -> None:
        """Raises RunsElsewhere if a living worker has the key. An empty ``id`` means any key."""
        wanted = key_offer(id)

        def has_it(offers: Iterable[str]) -> bool:
            return any(offer.startswith(wanted) if not id else offer == wanted for offer in offers)

        with _asking(wanted):
            found = await self.colleagues.any(lambda info: has_it(info.offers) and queue in info.queues)
        if found:
            raise RunsElsewhere(
                "the snapshot needs a secret key that this process does not have; another worker has it"
            )

    async def _has(self, offer: str, queue: str) -> bool:
        with _asking(offer):
            return await self.colleagues.any(lambda info: offer in info.offers and queue in info.queues)


def _comes_back(task: str, queue: str) -> ComesBack:
    return ComesBack(
        f"no living worker of queue '{queue}' has task '{task}'; one had it a while ago; start it again"
    )


@contextmanager
def _asking(offer: str) -> Iterator[None]:
    """Where the store cannot be asked, that must not fail what somebody may have."""
    try:
        yield
    except OperatorError as error:
        raise RunsElsewhere(f"it cannot be asked whether another worker has {offer}: {error}") from error
