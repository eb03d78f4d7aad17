"""``/v1/health``: for people, and for whoever starts and balances servers."""

from __future__ import annotations

from fastapi import APIRouter

from dalsegno.errors import Unavailable
from dalsegno.server.access import needs
from dalsegno.server.health import examine
from dalsegno.server.office import TheOffice
from dalsegno.server.reaching import ask_store
from dalsegno.server.route import Route
from dalsegno.server.schemas.operation import Alive, Health

router = APIRouter(prefix="/health", tags=["operation"], route_class=Route)


@router.get("", operation_id="get_health", dependencies=[needs("read")])
async def health(office: TheOffice) -> Health:
    """Each dependency with its state: the store and how quickly it answers, the disk, timers, this process's worker,
    the outbox; and every dead worker that still holds work, by name."""
    return await examine(office)


@router.get("/live", operation_id="get_liveness")
async def live() -> Alive:
    """The process answers. Restart it if it does not. No key needed."""
    return Alive(status="ok")


@router.get("/ready", operation_id="get_readiness")
async def ready(office: TheOffice) -> Alive:
    """Requests can be served: 503 while the store is out of reach or takes no writes, or the server stops. Needs no
    key."""
    if office.closing.is_set():
        raise Unavailable("the server is stopping")
    await ask_store(office.client.stack)
    return Alive(status="ok")
