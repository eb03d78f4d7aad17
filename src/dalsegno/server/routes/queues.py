"""``/v1/queues``: how long they are, and whether anybody serves them."""

from __future__ import annotations

from fastapi import APIRouter

from dalsegno.engine.serving import served_queues
from dalsegno.server.access import needs
from dalsegno.server.office import TheOffice
from dalsegno.server.route import Route
from dalsegno.server.schemas.operation import QueueList, QueueStatus

router = APIRouter(prefix="/queues", tags=["operation"], route_class=Route)


@router.get("", operation_id="list_queues", dependencies=[needs("read")])
async def queues(office: TheOffice) -> QueueList:
    """Every queue in which something is ready or in progress, by name."""
    ledger = office.client.stack.ledger
    served, now = await served_queues(ledger), ledger.now()
    found = await ledger.queues()
    return QueueList(queues=[QueueStatus.of(view, now, view.queue in served) for view in found])
