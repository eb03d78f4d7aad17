"""``/v1/schedules``: workflows that start by themselves."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response, status

from dalsegno.engine.schedules import SHOWN_TIMES, ScheduleBook
from dalsegno.errors import NotFound
from dalsegno.server.access import caller_of, needs
from dalsegno.server.office import Office, TheOffice
from dalsegno.server.pages import Cursor, Limit, Page, from_cursor, to_cursor
from dalsegno.server.repeating import USED_BEFORE, IdempotencyKey, answer_for, starter_of
from dalsegno.server.route import Route
from dalsegno.server.schemas.executions import Execution
from dalsegno.server.schemas.schedules import ScheduleInfo, ScheduleRequest, ScheduleSetting

router = APIRouter(prefix="/schedules", tags=["schedules"], route_class=Route)

Name = Annotated[str, Path(max_length=200, description="The schedule's name.", examples=["nightly"])]
Times = Annotated[int, Query(ge=1, le=100, description="How many of its next times.")]


def book_of(office: Office) -> ScheduleBook:
    client = office.client
    return ScheduleBook(client.stack, client.committer, client.definitions)


@router.get("", operation_id="list_schedules", dependencies=[needs("read")])
async def schedules(office: TheOffice, limit: Limit = 100, cursor: Cursor = None) -> Page[ScheduleInfo]:
    """All schedules that are not over, and those that failed, by name; each with its next time."""
    after = from_cursor(cursor) or ""
    found = [view for view in await book_of(office).list() if view.name > after]
    items = [ScheduleInfo.of(view) for view in found[:limit]]
    return Page(items=items, next=to_cursor(items[-1].name) if len(found) > limit else None)


@router.post(
    "", operation_id="create_schedule", status_code=status.HTTP_201_CREATED, dependencies=[needs("run")]
)
async def add(office: TheOffice, request: ScheduleRequest) -> ScheduleInfo:
    """A new schedule. A name that is taken is refused (409), unless `replace` is true."""
    view = await book_of(office).add(
        request.named(request.name), replace=request.replace, allow_unknown=request.allow_unknown
    )
    return ScheduleInfo.of(view)


@router.post("/{name:whole}/pause", operation_id="pause_schedule", dependencies=[needs("run")])
async def pause(office: TheOffice, name: Name) -> ScheduleInfo:
    """No time fires until it is resumed; then those that passed count as missed."""
    await book_of(office).pause(name)
    return await _shown(office, name)


@router.post("/{name:whole}/resume", operation_id="resume_schedule", dependencies=[needs("run")])
async def resume(office: TheOffice, name: Name) -> ScheduleInfo:
    """Its times fire again."""
    await book_of(office).resume(name)
    return await _shown(office, name)


@router.post(
    "/{name:whole}/trigger",
    operation_id="trigger_schedule",
    status_code=status.HTTP_201_CREATED,
    dependencies=[needs("run")],
    responses=USED_BEFORE,
)
async def trigger(
    office: TheOffice,
    name: Name,
    response: Response,
    http: Request,
    idempotency_key: IdempotencyKey = None,
) -> Execution:
    """Starts its workflow now, beside its times. With a key that was used before for this schedule, the execution that
    was started then is returned (200 instead of 201)."""
    caller = caller_of(http)
    office.usage.count_starts(caller)
    order = await book_of(office).trigger(name, idempotency_key)
    starter = await starter_of(office, caller, order.execution)
    started = await office.client.launcher.start_ordered(order, starter)
    return await answer_for(office, started, response)


@router.get("/{name:whole}", operation_id="get_schedule", dependencies=[needs("read")])
async def schedule(office: TheOffice, name: Name, times: Times = SHOWN_TIMES) -> ScheduleInfo:
    """One schedule, with its next times."""
    return await _shown(office, name, times)


@router.put(
    "/{name:whole}",
    operation_id="put_schedule",
    dependencies=[needs("run")],
    responses={201: {"model": ScheduleInfo}},
)
async def put(office: TheOffice, name: Name, setting: ScheduleSetting, response: Response) -> ScheduleInfo:
    """Creates a schedule (201), or changes what it says (200); what it counted is kept."""
    book, is_new = book_of(office), False
    try:
        is_new = (await book.describe(name, 1)).state not in ("RUNNING", "PAUSED")
    except NotFound:
        is_new = True
    view = await book.add(setting.named(name), replace=True, allow_unknown=setting.allow_unknown)
    if is_new:
        response.status_code = status.HTTP_201_CREATED
    return ScheduleInfo.of(view)


@router.delete(
    "/{name:whole}",
    operation_id="delete_schedule",
    status_code=status.HTTP_204_NO_CONTENT,
    dependencies=[needs("run")],
)
async def remove(office: TheOffice, name: Name) -> None:
    """No time fires any more. What it started runs on."""
    await book_of(office).remove(name)


async def _shown(office: Office, name: str, times: int = SHOWN_TIMES) -> ScheduleInfo:
    return ScheduleInfo.of(await book_of(office).describe(name, times))
