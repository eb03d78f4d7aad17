"""``/v1/workers``: who runs what."""

from __future__ import annotations

from fastapi import APIRouter

from dalsegno.engine.processes import dead_among
from dalsegno.engine.worker_info import WorkerInfo, read_info
from dalsegno.ports.ledger import WorkerView
from dalsegno.server.access import needs
from dalsegno.server.office import TheOffice
from dalsegno.server.route import Route
from dalsegno.server.schemas.operation import RunningInfo, Workers, WorkerStatus
from dalsegno.server.schemas.values import moment

router = APIRouter(prefix="/workers", tags=["operation"], route_class=Route)


@router.get("", dependencies=[needs("read")])
async def workers(office: TheOffice) -> Workers:
    """All that have not been gone for long: what they run, since when, and how many leases they hold. One that died is
    listed until its leases are taken back."""
    ledger = office.client.stack.ledger
    found = await ledger.workers()
    gone = set(dead_among([view.id for view in found]))
    now = ledger.now()
    return Workers(workers=[_status(view, view.id in gone or view.expires_at <= now) for view in found])


def _status(view: WorkerView, dead: bool) -> WorkerStatus:
    info: WorkerInfo = read_info(view.info)
    return WorkerStatus(
        id=view.id,
        kind="remote" if info.remote is not None else "local",
        state="dead" if dead else "alive",
        host=info.host or None,
        process=info.process or None,
        since=moment(info.since) if info.since else None,
        expires_at=moment(view.expires_at),
        queues=list(info.queues),
        concurrency=info.concurrency or None,
        leases=view.leases,
        running=[
            RunningInfo(
                execution=each.execution,
                node=each.node,
                kind=each.kind,
                queue=each.queue,
                attempt=each.attempt,
            )
            for each in (info.running if view.leases else ())  # what it has ended since its last heartbeat
        ],
    )
