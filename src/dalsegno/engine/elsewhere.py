"""Code that this process lacks and a living worker has: what needs it is left to that worker, and does not fail here.

Two programs on one store, or two versions of one program while it is deployed, know different tasks and functions. Each
worker tells in its heartbeats what it can run.
"""

from __future__ import annotations

from collections.abc import Iterable

from dalsegno.engine.raised import PassesThrough
from dalsegno.engine.serving import Colleagues
from dalsegno.engine.transactions import UsesTransactions
from dalsegno.errors import OperatorError
from dalsegno.model.token import Lease
from dalsegno.ports.node import NodeContext

_TASK = "task:"
_VERSION = "version:"


def task_offer(name: str) -> str:
    return _TASK + name


def version_offer(hash: str) -> str:
    """Of a Python workflow: the worker's own program has exactly this one."""
    return _VERSION + hash


def listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))


class RunsElsewhere(PassesThrough):
    """A living worker that serves the token's queue has, or may have, what this process lacks."""


class Elsewhere:
    def __init__(self, colleagues: Colleagues) -> None:
        self._colleagues = colleagues

    async def look_for_task(self, name: str, run: NodeContext) -> None:
        """Raises RunsElsewhere if the task could run there."""
        if isinstance(run, UsesTransactions) and await self._has(task_offer(name), run.own_lease.queue):
            raise RunsElsewhere(f"task '{name}' is not registered in this process; another worker has it")

    async def look_for_version(self, hash: str, lacking: frozenset[str], lease: Lease) -> None:
        """Raises RunsElsewhere if a turn of this version could run there."""
        if await self._has(version_offer(hash), lease.queue):
            raise RunsElsewhere(
                f"this version of the workflow uses {listed(lacking)}, which the program of this process does not have;"
                " another worker has the version"
            )

    async def _has(self, offer: str, queue: str) -> bool:
        """Where the store cannot be asked, that must not fail what somebody may have."""
        try:
            return await self._colleagues.any(lambda info: offer in info.offers and queue in info.queues)
        except OperatorError as error:
            raise RunsElsewhere(f"it cannot be asked whether another worker has {offer}: {error}") from error
