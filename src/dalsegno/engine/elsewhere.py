"""Code that this process lacks and a living worker has: what needs it is left to that worker, and does not fail here.

Two programs on one store, or two versions of one program while it is deployed, know different tasks and functions. Each
worker tells in its heartbeats what it can run.
"""

from __future__ import annotations

from dalsegno.engine.raised import PassesThrough
from dalsegno.engine.serving import Colleagues
from dalsegno.engine.transactions import UsesTransactions
from dalsegno.model.token import Lease
from dalsegno.ports.node import NodeContext

_TASK = "task:"
_VERSION = "version:"


def task_offer(name: str) -> str:
    return _TASK + name


def version_offer(hash: str) -> str:
    """Of a Python workflow: the worker's own program has exactly this one."""
    return _VERSION + hash


class RunsElsewhere(PassesThrough):
    """A living worker that serves the token's queue has what this process lacks."""


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
            names = ", ".join(f"'{name}'" for name in sorted(lacking))
            raise RunsElsewhere(
                f"the program of this process has no {names}, which this version of the workflow uses; another worker"
                " has the version"
            )

    async def _has(self, offer: str, queue: str) -> bool:
        return any(offer in info.offers and queue in info.queues for info in await self._colleagues.look())
