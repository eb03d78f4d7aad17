"""``/v1/schedules``: workflows that start at set times."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response, status

from dalsegno.engine.schedules import SHOWN_TIMES, ScheduleRecords
from dalsegno.errors import NotFound
from dalsegno.model.execution import UNDER_WAY
from dalsegno.server.auth.authentication import caller_of, needs
from dalsegno.server.executions.filters import Cursor, Limit, Page, from_cursor, to_cursor
from dalsegno.server.executions.starts import USED_BEFORE, answer_for
from dalsegno.server.http.request import IdempotencyKey
from dalsegno.server.http.routing import Route
from dalsegno.server.schemas.executions import Execution
from dalsegno.server.schemas.schedules import ScheduleInfo, ScheduleRequest, ScheduleSetting
from dalsegno.server.services import ServerServices, Services

router = APIRouter(prefix="/schedules", tags=["schedules"], route_class=Route)

Name = Annotated[str, Path(max_length=200, description="The schedule's name.", examples=["nightly"])]
Times = Annotated[int, Query(ge=1, le=100, description="Number of next times.")]


def schedules_of(services: ServerServices) -> ScheduleRecords:
    client = services.client
    return ScheduleRecords(client.stack, client.committer, client.definitions)


@router.get("", operation_id="list_schedules", dependencies=[needs("read")])
async def schedules(services: Services, limit: Limit = 100, cursor: Cursor = None) -> Page[ScheduleInfo]:
    """Lists all schedules that have not ended, and those that failed, by name; each with its next time."""
    after = from_cursor(cursor) or ""
    found = [view for view in await schedules_of(services).list() if view.name > after]
    items = [ScheduleInfo.of(view) for view in found[:limit]]
    return Page(items=items, next=to_cursor(items[-1].name) if len(found) > limit else None)


@router.post(
    "", operation_id="create_schedule", status_code=status.HTTP_201_CREATED, dependencies=[needs("run")]
)
async def add(services: Services, request: ScheduleRequest) -> ScheduleInfo:
    """Creates a schedule. A name in use is refused (409), unless `replace` is true."""
    view = await schedules_of(services).add(
        request.named(request.name), replace=request.replace, allow_unknown=request.allow_unknown
    )
    return ScheduleInfo.of(view)


@router.post("/{name:whole}/pause", operation_id="pause_schedule", dependencies=[needs("run")])
async def pause(services: Services, name: Name) -> ScheduleInfo:
    """Pauses a schedule: no time fires until it is resumed; times that passed meanwhile then count as missed."""
    await schedules_of(services).pause(name)
    return await _shown(services, name)


@router.post("/{name:whole}/resume", operation_id="resume_schedule", dependencies=[needs("run")])
async def resume(services: Services, name: Name) -> ScheduleInfo:
    """Resumes a schedule: its times fire again."""
    await schedules_of(services).resume(name)
    return await _shown(services, name)


@router.post(
    "/{name:whole}/trigger",
    operation_id="trigger_schedule",
    status_code=status.HTTP_201_CREATED,
    dependencies=[needs("run")],
    responses=USED_BEFORE,
)
async def trigger(
    services: Services,
    name: Name,
    response: Response,
    http: Request,
    idempotency_key: IdempotencyKey = None,
) -> Execution:
    """Starts the schedule's workflow now, in addition to its times. A repeated idempotency key of this schedule
    returns the existing execution (200 instead of 201)."""
    caller = caller_of(http)
    services.usage.count_starts(caller)
    order = await schedules_of(services).trigger(name, idempotency_key)
    starter = await services.usage.starter_unless(services.client.stack.archive, caller, order.execution)
    started = await services.client.launcher.start_ordered(order, starter)
    return await answer_for(services, started, response)


@router.get("/{name:whole}", operation_id="get_schedule", dependencies=[needs("read")])
async def schedule(services: Services, name: Name, times: Times = SHOWN_TIMES) -> ScheduleInfo:
    """Returns one schedule with its next times."""
    return await _shown(services, name, times)


@router.put(
    "/{name:whole}",
    operation_id="put_schedule",
    dependencies=[needs("run")],
    responses={201: {"model": ScheduleInfo}},
)
async def put(services: Services, name: Name, setting: ScheduleSetting, response: Response) -> ScheduleInfo:
    """Creates a schedule (201) or changes its settings (200); its counters are kept."""
    schedules, is_new = schedules_of(services), False
    try:
        is_new = (await schedules.describe(name, 1)).state not in UNDER_WAY
    except NotFound:
        is_new = True
    view = await schedules.add(setting.named(name), replace=True, allow_unknown=setting.allow_unknown)
    if is_new:
        response.status_code = status.HTTP_201_CREATED
    return ScheduleInfo.of(view)


@router.delete(
    "/{name:whole}",
    operation_id="delete_schedule",
    status_code=status.HTTP_204_NO_CONTENT,
    dependencies=[needs("run")],
)
async def remove(services: Services, name: Name) -> None:
    """Removes a schedule: no time fires any more. Executions it started continue."""
    await schedules_of(services).remove(name)


async def _shown(services: ServerServices, name: str, times: int = SHOWN_TIMES) -> ScheduleInfo:
    return ScheduleInfo.of(await schedules_of(services).describe(name, times))
