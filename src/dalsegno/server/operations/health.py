"""Health checks of the server's dependencies, evaluated on request."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from dalsegno.engine.worker.directory import dead_workers, living_workers, queues_of, read_info, remote_queue
from dalsegno.errors import DalSegnoError, OperatorError
from dalsegno.model.token import SYSTEM_QUEUE
from dalsegno.ports.ledger import QueueView, WorkerView
from dalsegno.ports.stack import Server
from dalsegno.server.operations.store_probe import ask_store
from dalsegno.server.schemas.operations import Health, HealthStatus, Part
from dalsegno.server.services import ServerServices
from dalsegno.version import __version__
from dalsegno.wiring import sqlite_path

SLOW = 0.25
LATE = 5.0
"""Seconds by which a timer may be overdue."""
LOW_SPACE, NO_SPACE = 1024**3, 64 * 1024**2
BACKLOG = 1000
NAMED = 10
"""Queues or workers that are named; the rest is counted."""


async def examine(services: ServerServices) -> Health:
    parts = [await _store(services), *_servers(services)]
    dead: list[str] = []
    if parts[0].status != "down":
        workers = await services.client.stack.ledger.workers()
        dead = _dead(services, workers)
        parts += [*_disk(services), *_timers(services), *_worker(services, workers), await _outbox(services)]
        parts += [*_of_other_programs(services, workers), _lost(dead), await _queues(services)]
        parts += _webhooks(services)
    statuses = {part.status for part in parts}
    status: HealthStatus = "down" if "down" in statuses else "degraded" if "degraded" in statuses else "ok"
    return Health(status=status, version=__version__, parts=parts, dead_workers=dead)


async def _store(services: ServerServices) -> Part:
    try:
        seconds = await ask_store(services.client.stack)
    except OperatorError as error:
        return Part(name="store", status="down", detail=str(error))
    slow = seconds > SLOW
    detail = "answers slowly" if slow else "answers"
    return Part(name="store", status="degraded" if slow else "ok", detail=detail, seconds=seconds)


def _servers(services: ServerServices) -> list[Part]:
    """Check the servers besides the store's. Without them workers find their work in the store."""
    return [server_part(server) for server in services.client.stack.servers]


def server_part(server: Server) -> Part:
    problem = server.problem()
    status: HealthStatus = "degraded" if problem else "ok"
    return Part(name=server.name, status=status, detail=problem or "is connected")


def _disk(services: ServerServices) -> list[Part]:
    """Check the disk of a store that is a file."""
    if not services.app.url.startswith("sqlite:"):
        return []
    try:
        free = shutil.disk_usage(sqlite_path(services.app.url).parent).free
    except (OSError, DalSegnoError) as error:
        return [Part(name="disk", status="degraded", detail=str(error))]
    status: HealthStatus = "down" if free < NO_SPACE else "degraded" if free < LOW_SPACE else "ok"
    return [Part(name="disk", status=status, detail=f"{free / 1024**3:.1f} GiB free")]


def _timers(services: ServerServices) -> list[Part]:
    """Check overdue timers, only in a process with the role that fires them."""
    timers = services.engine.timers
    if timers.looked_at is None:
        return []
    silent = services.client.stack.ledger.now() - timers.looked_at
    lag = timers.lag()
    if silent > 3 * timers.longest_sleep():
        return [Part(name="timers", status="degraded", detail="are no longer checked", seconds=silent)]
    late = lag > LATE
    detail = "late" if late else "on time"
    return [Part(name="timers", status="degraded" if late else "ok", detail=detail, seconds=lag)]


def _worker(services: ServerServices, workers: Sequence[WorkerView]) -> list[Part]:
    worker = services.engine.worker
    if worker is None:
        return []
    now = services.client.stack.ledger.now()
    row = next((view for view in workers if view.id == worker.name), None)
    if row is None or row.expires_at <= now:
        return [Part(name="worker", status="degraded", detail="its heartbeat is not written")]
    since = services.engine.settings.lease_seconds - (row.expires_at - now)
    return [
        Part(name="worker", status="ok", detail=f"runs {len(worker.running)} steps", seconds=max(since, 0.0))
    ]


async def _outbox(services: ServerServices) -> Part:
    owed = len(await services.client.stack.ledger.outbox(BACKLOG))
    long = owed >= BACKLOG
    detail = f"{owed}{' or more' if long else ''} entries to deliver"
    return Part(name="outbox", status="degraded" if long else "ok", detail=detail)


async def _queues(services: ServerServices) -> Part:
    """Check for queues without a worker: their work waits until a worker or a remote program for them starts."""
    ledger = services.client.stack.ledger
    waiting = [view for view in await ledger.queues() if view.ready]
    living = await living_workers(ledger) if waiting else []
    served = queues_of(living)
    unserved = sorted((view for view in waiting if view.queue not in served), key=lambda view: -view.ready)
    if not unserved:
        detail = "every queue with work has a worker"
        return Part(name="queues", status="ok", detail=detail, seconds=_longest_wait(waiting, ledger.now()))
    longest = _longest_wait(unserved, ledger.now())
    declarations = services.client.declarations
    remote = [view for view in unserved if await remote_queue(declarations, living, view.queue) is not None]
    served_by_app = [view for view in unserved if view not in remote]
    sentences = [f"no program claims {_listed(remote)}"] if remote else []
    if served_by_app:
        sentences.append(
            f"no live worker serves {_listed(served_by_app)}; start one with `dalsegno worker{_flag(served_by_app)}`"
        )
    return Part(name="queues", status="degraded", detail="; ".join(sentences), seconds=longest)


def _longest_wait(queues: Sequence[QueueView], now: float) -> float:
    """Return the age of the oldest step that is ready in one of the queues, over whichever broker it is announced."""
    return max((max(now - view.oldest, 0.0) for view in queues if view.oldest is not None), default=0.0)


def _listed(queues: Sequence[QueueView]) -> str:
    named = ", ".join(f"'{view.queue}' ({view.ready} waiting)" for view in queues[:NAMED])
    return f"{named} and {len(queues) - NAMED} more" if len(queues) > NAMED else named


def _flag(unserved: Sequence[QueueView]) -> str:
    """Return the command-line option that would serve the queues. Every worker serves the first two by default."""
    names = [view.queue for view in unserved[:NAMED] if view.queue not in ("default", SYSTEM_QUEUE)]
    return f" --queues {','.join(names)}" if names else ""


def _webhooks(services: ServerServices) -> list[Part]:
    """Check for webhooks whose last delivery could not be checked on this server."""
    unchecked = sorted(services.delivery_limits.unchecked.items())
    if not unchecked:
        return []
    named = "; ".join(f"'{webhook}': {why}" for webhook, why in unchecked[:NAMED])
    return [Part(name="webhooks", status="degraded", detail=f"deliveries cannot be checked: {named}")]


def _dead(services: ServerServices, workers: Sequence[WorkerView]) -> list[str]:
    now = services.client.stack.ledger.now()
    dead = dead_workers(workers, now)
    return [
        view.id
        for view in workers
        if view.id in dead and (view.leases or (read_info(view.info).via and read_info(view.info).tasks))
    ]


def _of_other_programs(services: ServerServices, workers: Sequence[WorkerView]) -> list[Part]:
    """Check the workers that take their tasks over a broker: the longest time since a heartbeat, and deaths."""
    now = services.client.stack.ledger.now()
    dead = dead_workers(workers, now)
    found = [(view, read_info(view.info)) for view in workers]
    theirs = [(view, info) for view, info in found if info.via and not info.carries]
    distribution = services.engine.distribution
    lost = distribution.lost() if distribution is not None else 0
    if not theirs and not lost:
        return []
    living = [info for view, info in theirs if view.id not in dead]
    gone = [info.remote or view.id for view, info in theirs if view.id in dead]
    sentences = [f"{len(living)} alive" + _named([info.remote or "" for info in living])]
    if gone:
        sentences.append(f"{len(gone)} dead{_named(gone)}: their tasks are handed out again")
    if lost:
        sentences.append(
            f"{lost} tasks handed out again after the death of a worker since this process started"
        )
    silence = max((now - info.heard for info in living), default=0.0)
    return [
        Part(
            name="workers of other programs",
            status="degraded" if gone else "ok",
            detail="; ".join(sentences),
            seconds=max(silence, 0.0),
        )
    ]


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f" ({', '.join(sorted(names)[:NAMED])}{more})" if names else ""


def _lost(dead: Sequence[str]) -> Part:
    if not dead:
        return Part(name="workers", status="ok", detail="no dead worker holds work")
    detail = f"{len(dead)} dead workers hold work, which is released soon: {', '.join(dead[:NAMED])}"
    return Part(name="workers", status="degraded", detail=detail)
