"""``/v1/queues``: how long they are, and whether anybody serves them."""

from __future__ import annotations

from fastapi import APIRouter

from dalsegno.engine.processes import dead_among
from dalsegno.engine.worker_info import read_info
from dalsegno.model.token import SYSTEM_QUEUE
from dalsegno.server.access import needs
from dalsegno.server.office import Office, TheOffice
from dalsegno.server.schemas.operation import Queues, QueueStatus

router = APIRouter(prefix="/queues", tags=["operation"])


@router.get("", dependencies=[needs("read")])
async def queues(office: TheOffice) -> Queues:
    """Every queue in which something is ready or in progress, by name."""
    served, now = await served_queues(office), office.client.stack.ledger.now()
    found = await office.client.stack.ledger.queues()
    return Queues(queues=[QueueStatus.of(view, now, view.queue in served) for view in found])


async def served_queues(office: Office) -> set[str]:
    ledger = office.client.stack.ledger
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
