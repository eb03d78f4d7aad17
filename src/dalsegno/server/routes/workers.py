"""``/v1/workers``: who runs what."""

from __future__ import annotations

from fastapi import APIRouter

from dalsegno.engine.roll_call import roll_call
from dalsegno.server.access import needs
from dalsegno.server.office import TheOffice
from dalsegno.server.route import Route
from dalsegno.server.schemas.operation import WorkerList, WorkerStatus

router = APIRouter(prefix="/workers", tags=["operation"], route_class=Route)


@router.get("", operation_id="list_workers", dependencies=[needs("read")])
async def workers(office: TheOffice) -> WorkerList:
    """All that have not been gone for long: what they run, since when, and how many leases they hold. One that died is
    listed until its leases are taken back."""
    return WorkerList(workers=[WorkerStatus.of(seen) for seen in await roll_call(office.client.stack.ledger)])
