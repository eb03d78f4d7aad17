"""How a server is: every thing it depends on, looked at when somebody asks."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from dalsegno.engine.processes import dead_among
from dalsegno.engine.serving import served_queues
from dalsegno.errors import DalSegnoError, OperatorError
from dalsegno.model.token import SYSTEM_QUEUE
from dalsegno.ports.ledger import QueueView, WorkerView
from dalsegno.server.office import Office
from dalsegno.server.reaching import ask_store
from dalsegno.server.schemas.operation import Health, HealthStatus, Part
from dalsegno.version import __version__
from dalsegno.wiring import sqlite_path

SLOW = 0.25
LATE = 5.0
"""Seconds by which a timer may be overdue."""
LITTLE_SPACE, NO_SPACE = 1024**3, 64 * 1024**2
BACKLOG = 1000
NAMED = 10
"""Queues or workers that are named; the others are counted."""


async def examine(office: Office) -> Health:
    parts = [await _store(office)]
    dead: list[str] = []
    if parts[0].status != "down":
        workers = await office.client.stack.ledger.workers()
        dead = _dead(office, workers)
        parts += [*_disk(office), *_timers(office), *_worker(office, workers), await _outbox(office)]
        parts += [_lost(dead), await _queues(office), *_webhooks(office)]
    statuses = {part.status for part in parts}
    status: HealthStatus = "down" if "down" in statuses else "degraded" if "degraded" in statuses else "ok"
    return Health(status=status, version=__version__, parts=parts, dead_workers=dead)


async def _store(office: Office) -> Part:
    try:
        seconds = await ask_store(office.client.stack)
    except OperatorError as error:
        return Part(name="store", status="down", detail=str(error))
    slow = seconds > SLOW
    detail = "answers slowly" if slow else "answers"
    return Part(name="store", status="degraded" if slow else "ok", detail=detail, seconds=seconds)


def _disk(office: Office) -> list[Part]:
    """Of a store that is a file."""
    if not office.app.url.startswith("sqlite:"):
        return []
    try:
        free = shutil.disk_usage(sqlite_path(office.app.url).parent).free
    except (OSError, DalSegnoError) as error:
        return [Part(name="disk", status="degraded", detail=str(error))]
    status: HealthStatus = "down" if free < NO_SPACE else "degraded" if free < LITTLE_SPACE else "ok"
    return [Part(name="disk", status=status, detail=f"{free / 1024**3:.1f} GiB free")]


def _timers(office: Office) -> list[Part]:
    """Only of a process that plays this role."""
    timers = office.engine.timers
    if timers.looked_at is None:
        return []
    silent = office.client.stack.ledger.now() - timers.looked_at
    lag = timers.lag()
    if silent > 3 * timers.longest_sleep():
        return [Part(name="timers", status="degraded", detail="do not come round any more", seconds=silent)]
    late = lag > LATE
    detail = "late" if late else "on time"
    return [Part(name="timers", status="degraded" if late else "ok", detail=detail, seconds=lag)]


def _worker(office: Office, workers: Sequence[WorkerView]) -> list[Part]:
    worker = office.engine.worker
    if worker is None:
        return []
    now = office.client.stack.ledger.now()
    row = next((view for view in workers if view.id == worker.name), None)
    if row is None or row.expires_at <= now:
        return [Part(name="worker", status="degraded", detail="its heartbeat is not written")]
    since = office.engine.settings.lease_seconds - (row.expires_at - now)
    return [
        Part(name="worker", status="ok", detail=f"runs {len(worker.running)} steps", seconds=max(since, 0.0))
    ]


async def _outbox(office: Office) -> Part:
    owed = len(await office.client.stack.ledger.outbox(BACKLOG))
    long = owed >= BACKLOG
    detail = f"{owed}{' or more' if long else ''} entries to deliver"
    return Part(name="outbox", status="degraded" if long else "ok", detail=detail)


async def _queues(office: Office) -> Part:
    """Work that waits where no living worker looks stays there until somebody starts one."""
    ledger = office.client.stack.ledger
    waiting = [view for view in await ledger.queues() if view.ready]
    served = await served_queues(ledger) if waiting else set()
    unserved = sorted((view for view in waiting if view.queue not in served), key=lambda view: -view.ready)
    if not unserved:
        return Part(name="queues", status="ok", detail="no work waits where no worker serves")
    now = ledger.now()
    longest = max(now - view.oldest if view.oldest is not None else 0.0 for view in unserved)
    named = ", ".join(f"'{view.queue}' ({view.ready} waiting)" for view in unserved[:NAMED])
    more = f" and {len(unserved) - NAMED} more" if len(unserved) > NAMED else ""
    detail = f"no living worker serves {named}{more}; start one with `dalsegno worker{_flag(unserved)}`"
    return Part(name="queues", status="degraded", detail=detail, seconds=max(longest, 0.0))


def _flag(unserved: Sequence[QueueView]) -> str:
    """Every worker serves the first two unless it is told otherwise."""
    names = [view.queue for view in unserved[:NAMED] if view.queue not in ("default", SYSTEM_QUEUE)]
    return f" --queues {','.join(names)}" if names else ""


def _webhooks(office: Office) -> list[Part]:
    """Those whose last delivery here could not be checked."""
    unchecked = sorted(office.reception.unchecked.items())
    if not unchecked:
        return []
    named = "; ".join(f"'{webhook}': {why}" for webhook, why in unchecked[:NAMED])
    return [Part(name="webhooks", status="degraded", detail=f"deliveries cannot be checked: {named}")]


def _dead(office: Office, workers: Sequence[WorkerView]) -> list[str]:
    now = office.client.stack.ledger.now()
    gone = set(dead_among([view.id for view in workers]))
    return [view.id for view in workers if (view.id in gone or view.expires_at <= now) and view.leases]


def _lost(dead: Sequence[str]) -> Part:
    if not dead:
        return Part(name="workers", status="ok", detail="no dead worker holds work")
    detail = f"{len(dead)} dead workers hold work, which is taken back soon: {', '.join(dead[:NAMED])}"
    return Part(name="workers", status="degraded", detail=detail)
