"""Which queues somebody serves at the moment, as far as the heartbeats tell."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from dalsegno.core.diagnosis import Wait
from dalsegno.engine.processes import dead_among
from dalsegno.engine.worker_info import read_info
from dalsegno.model.token import SYSTEM_QUEUE
from dalsegno.ports.ledger import Ledger


async def served_queues(ledger: Ledger) -> set[str]:
    views = await ledger.workers()
    gone = set(dead_among([view.id for view in views]))
    served: set[str] = set()
    for view in views:
        if view.id in gone or view.expires_at <= ledger.now():
            continue
        info = read_info(view.info)
        served.update(info.queues)
        if info.remote is None:
            served.add(SYSTEM_QUEUE)
    return served


async def naming_the_unserved(ledger: Ledger, waiting: Sequence[Wait]) -> list[Wait]:
    """What waits in a queue that nobody serves says so: it will not move before somebody starts a worker."""
    if not any(wait.kind == "queued" and wait.queue for wait in waiting):
        return list(waiting)
    served = await served_queues(ledger)
    return [
        replace(wait, sentence=f"{wait.sentence}; no worker serves queue '{wait.queue}' now")
        if wait.kind == "queued" and wait.queue and wait.queue not in served
        else wait
        for wait in waiting
    ]
