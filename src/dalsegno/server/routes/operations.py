"""Routes for operators: dead letters, error codes, health, limits, metrics, queues and workers.

- ``/v1/dead``: dead letters.
- ``/v1/errors``: cause and cure of every code; the `type` of a problem document links here.
- ``/v1/health``: for people, supervisors and load balancers.
- ``/v1/limits``: limits that operators set for keys, and their use.
- ``/v1/queues``: their lengths, and whether a worker serves them.
- ``/v1/workers``: the workers and what they run.
- ``/metrics``: for Prometheus.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Request, Response, status
from prometheus_client import CONTENT_TYPE_LATEST

from dalsegno import errors as taxonomy
from dalsegno.engine.operations.dead_letters import DeadLetters, DeadPlace
from dalsegno.engine.operations.limits import OperatorLimits
from dalsegno.engine.worker.directory import list_workers, served_queues
from dalsegno.error_causes import CAUSES, NODE_CODES
from dalsegno.errors import DalSegnoError, NotFound, Unavailable
from dalsegno.server.auth.authentication import caller_of, needs
from dalsegno.server.executions.filters import Cursor, Limit, Page, from_cursor, to_cursor, unknown_cursor
from dalsegno.server.http.routing import Route
from dalsegno.server.operations.health import examine
from dalsegno.server.operations.metrics import exposition
from dalsegno.server.operations.store_probe import ask_store
from dalsegno.server.schemas.operations import (
    Alive,
    DeadLetterInfo,
    ErrorInfo,
    ErrorList,
    Handled,
    Health,
    LimitInfo,
    LimitRequest,
    QueueList,
    QueueStatus,
    WorkerList,
    WorkerStatus,
)
from dalsegno.server.schemas.values import PRINTABLE
from dalsegno.server.services import Services

dead_router = APIRouter(prefix="/dead", tags=["operation"], route_class=Route)

LetterId = Annotated[str, Path(max_length=300, description="As the list shows it.")]


@dead_router.get("", operation_id="list_dead_letters", dependencies=[needs("read")])
async def dead(services: Services, limit: Limit = 100, cursor: Cursor = None) -> Page[DeadLetterInfo]:
    """Lists orders that cannot be delivered, steps that no worker can run, executions that cannot make progress,
    and executions that failed for a reason of the system. A page examines 1,000 failed executions at most: a
    short or empty page is not the last while it has a `next`."""
    found, further = await DeadLetters(services.engine).page(_place(cursor), limit)
    items = [DeadLetterInfo.of(letter) for letter in found]
    return Page(items=items, next=_cursor(further) if further is not None else None)


@dead_router.post("/{letter:whole}/retry", operation_id="retry_dead_letter", dependencies=[needs("run")])
async def retry(services: Services, letter: LetterId, http: Request) -> Handled:
    """Retries a dead letter at once. A failed execution is retried as a new execution, whose id is returned: that of
    a script or Python workflow starts over, without asking. A letter `cleanup` runs the clean-up only, with the
    idempotency keys of the old execution."""
    caller = caller_of(http)
    services.usage.count_starts(caller)
    starter = await services.usage.starter(services.client.stack.archive, caller)
    return Handled(id=letter, execution=await DeadLetters(services.engine).retry(letter, starter))


@dead_router.post("/{letter:whole}/drop", operation_id="drop_dead_letter", dependencies=[needs("admin")])
async def drop(services: Services, letter: LetterId) -> Handled:
    """Drops a dead letter: an order is not carried out, an execution is cancelled, a failed one is no longer
    listed."""
    return Handled(id=letter, execution=await DeadLetters(services.engine).drop(letter))


def _cursor(place: DeadPlace) -> str:
    return to_cursor(msgspec.json.encode(place).decode())


def _place(cursor: str | None) -> DeadPlace | None:
    before = from_cursor(cursor)
    if before is None:
        return None
    try:
        place = msgspec.json.decode(before, type=DeadPlace)
    except msgspec.DecodeError:
        raise unknown_cursor() from None
    if "\0" in place.id:
        raise unknown_cursor()
    return place


errors_router = APIRouter(prefix="/errors", tags=["operation"], route_class=Route)

Code = Annotated[str, Path(max_length=100, description="The error code.", examples=["DS-130"])]


def _names() -> dict[str, str]:
    """Return the names of error classes by code."""
    found = [
        each for each in vars(taxonomy).values() if isinstance(each, type) and issubclass(each, DalSegnoError)
    ]
    return {each.code: each.__name__ for each in found}


@errors_router.get("", operation_id="list_error_codes")
async def every_code() -> ErrorList:
    """Lists all codes of errors (`DS-…`), and those of failed nodes."""
    return ErrorList(errors=[_info(code) for code in (*CAUSES, *NODE_CODES)])


@errors_router.get("/{code}", operation_id="get_error_code")
async def one_error(code: Code) -> ErrorInfo:
    """Returns the cause of an error, and its cure."""
    if code not in CAUSES and code not in NODE_CODES:
        raise NotFound(f"there is no error code {code!r}")
    return _info(code)


def _info(code: str) -> ErrorInfo:
    cause, cure = CAUSES[code] if code in CAUSES else NODE_CODES[code]
    return ErrorInfo(code=code, name=_names().get(code), cause=cause, cure=cure)


health_router = APIRouter(prefix="/health", tags=["operation"], route_class=Route)


@health_router.get("", operation_id="get_health", dependencies=[needs("read")])
async def health(services: Services) -> Health:
    """Returns the state of each dependency: the store and its response time, the disk, timers, this process's
    worker, the outbox; and the name of every dead worker that still holds leases."""
    return await examine(services)


@health_router.get("/live", operation_id="get_liveness")
async def live() -> Alive:
    """Liveness: the process answers. Restart it if it does not. Needs no key."""
    return Alive(status="ok")


@health_router.get("/ready", operation_id="get_readiness")
async def ready(services: Services) -> Alive:
    """Readiness: requests can be served. 503 while the store is unreachable or read-only, or the server stops. A
    broker that is away is named, and does not matter: work is found in the store. Needs no key."""
    if services.closing.is_set():
        raise Unavailable("the server is stopping")
    await ask_store(services.client.stack)
    away = [server.name for server in services.client.stack.servers if not server.connected()]
    return Alive(status="ok", detail=f"away: {', '.join(away)}" if away else None)


limits_router = APIRouter(prefix="/limits", tags=["operation"], route_class=Route)

Key = Annotated[
    str,
    Path(min_length=1, max_length=500, pattern=PRINTABLE, description="The limit's key, such as `gmail`."),
]


@limits_router.get("", operation_id="list_limits", dependencies=[needs("read")])
async def limits(services: Services, limit: Limit = 100, cursor: Cursor = None) -> Page[LimitInfo]:
    """Lists keys with a limit, with slots in use, or with waiting work; by key."""
    views = await OperatorLimits(services.client.stack).page(from_cursor(cursor) or "", limit + 1)
    items = [LimitInfo.of(view) for view in views[:limit]]
    return Page(items=items, next=to_cursor(items[-1].key) if len(views) > limit else None)


@limits_router.get("/{key:whole}", operation_id="get_limit", dependencies=[needs("read")])
async def one_limit(services: Services, key: Key) -> LimitInfo:
    """Returns the current state of one key. An unused key has no limit and no slots in use."""
    return LimitInfo.of(await OperatorLimits(services.client.stack).get(key))


@limits_router.put("/{key:whole}", operation_id="set_limit", dependencies=[needs("admin")])
async def set_limit(services: Services, key: Key, request: LimitRequest) -> LimitInfo:
    """Sets the limit of a key, in every process; it takes precedence over definitions. Running work continues."""
    limits_of = OperatorLimits(services.client.stack)
    return LimitInfo.of(await limits_of.set(key, request.concurrency, request.rate))


@limits_router.delete(
    "/{key:whole}",
    operation_id="delete_limit",
    status_code=status.HTTP_204_NO_CONTENT,
    dependencies=[needs("admin")],
)
async def remove(services: Services, key: Key) -> Response:
    """Removes the limit of a key; the limits in definitions apply again."""
    if not await OperatorLimits(services.client.stack).remove(key):
        raise NotFound(f"no limit is set for the key '{key}'")
    return Response(status_code=status.HTTP_204_NO_CONTENT)


metrics_router = APIRouter(tags=["operation"])


class MetricsText(Response):
    media_type = CONTENT_TYPE_LATEST


@metrics_router.get(
    "/metrics", operation_id="get_metrics", dependencies=[needs("read")], response_class=MetricsText
)
async def metrics(services: Services) -> MetricsText:
    """Returns the counters of this process and the state of the store as Prometheus text."""
    return MetricsText(await exposition(services))


queues_router = APIRouter(prefix="/queues", tags=["operation"], route_class=Route)


@queues_router.get("", operation_id="list_queues", dependencies=[needs("read")])
async def queues(services: Services) -> QueueList:
    """Lists every queue with ready or running work, by name."""
    ledger = services.client.stack.ledger
    served, now = await served_queues(ledger), ledger.now()
    found = await ledger.queues()
    return QueueList(queues=[QueueStatus.of(view, now, view.queue in served) for view in found])


workers_router = APIRouter(prefix="/workers", tags=["operation"], route_class=Route)


@workers_router.get("", operation_id="list_workers", dependencies=[needs("read")])
async def workers(services: Services) -> WorkerList:
    """Lists current and recently stopped workers: what they run, since when, and how many leases they hold. A dead
    worker is listed until its leases are reclaimed."""
    return WorkerList(
        workers=[WorkerStatus.of(seen) for seen in await list_workers(services.client.stack.ledger)]
    )
