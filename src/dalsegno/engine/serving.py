"""Who works at the moment and serves which queues, as far as the heartbeats tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from dalsegno.core.diagnosis import Wait
from dalsegno.engine.processes import dead_among
from dalsegno.engine.worker_info import WorkerInfo, read_info
from dalsegno.model.token import SYSTEM_QUEUE, module_of
from dalsegno.ports.ledger import Ledger

FRESH = 1.0
"""Seconds for which it is remembered that somebody works."""


async def living_workers(ledger: Ledger) -> list[WorkerInfo]:
    views = await ledger.workers()
    gone = set(dead_among([view.id for view in views]))
    return [read_info(view.info) for view in views if view.id not in gone and view.expires_at > ledger.now()]


async def served_queues(ledger: Ledger) -> set[str]:
    served: set[str] = set()
    for info in await living_workers(ledger):
        served.update(info.queues)
        if info.remote is None:
            served.add(SYSTEM_QUEUE)
    return served


class Colleagues:
    """The living workers, for those who ask often."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: list[WorkerInfo] = []
        self._until = -math.inf

    async def any(self, wanted: Callable[[WorkerInfo], bool]) -> bool:
        """Whether one of them is wanted. A moment ago is enough to know that, and not that there is none."""
        if self._ledger.now() < self._until and any(map(wanted, self._known)):
            return True
        self._known = await living_workers(self._ledger)
        self._until = self._ledger.now() + FRESH
        return any(map(wanted, self._known))


async def naming_the_unserved(ledger: Ledger, waiting: Sequence[Wait]) -> list[Wait]:
    """What waits in a queue that nobody serves says so: it will not move before somebody starts a worker."""
    if not any(wait.kind == "queued" and wait.queue for wait in waiting):
        return list(waiting)
    served = await served_queues(ledger)
    return [
        replace(wait, sentence=f"{wait.sentence}; {_nobody_serves(wait.queue)}")
        if wait.kind == "queued" and wait.queue and wait.queue not in served
        else wait
        for wait in waiting
    ]


def _nobody_serves(queue: str) -> str:
    module = module_of(queue)
    if module is None:
        return f"no worker serves queue '{queue}' now"
    return f"no worker that has imported '{module}' is alive; start one with `dalsegno worker --app {module}:app`"
