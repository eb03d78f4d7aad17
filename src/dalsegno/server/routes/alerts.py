"""``/v1/alerts``: who is told of failures."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Response, status

from dalsegno.errors import InvalidInput, NotDelivered
from dalsegno.lang.durations import BadDuration, parse_duration
from dalsegno.server.access import needs
from dalsegno.server.alerting import Alerting, State
from dalsegno.server.alerts import STATE, Alert
from dalsegno.server.office import Office, TheOffice
from dalsegno.server.pages import Cursor, Limit, Page, from_cursor, to_cursor
from dalsegno.server.route import Route
from dalsegno.server.schemas.alerts import (
    AlertInfo,
    AlertSaved,
    AlertSetting,
    RotatedSecret,
    RotateRequest,
    Tested,
)

router = APIRouter(prefix="/alerts", tags=["alerts"], route_class=Route)

Id = Annotated[str, Path(max_length=100, description="The alert's id.", examples=["ops"])]


@router.get("", operation_id="list_alerts", dependencies=[needs("read")])
async def alerts(office: TheOffice, limit: Limit = 100, cursor: Cursor = None) -> Page[AlertInfo]:
    """All alerts by id."""
    found = await Alerting(office).book.page(from_cursor(cursor) or "", limit + 1)
    items = [await _info(office, alert) for alert in found[:limit]]
    return Page(items=items, next=to_cursor(items[-1].id) if len(found) > limit else None)


@router.get("/{id}", operation_id="get_alert", dependencies=[needs("read")])
async def alert(office: TheOffice, id: Id) -> AlertInfo:
    """One alert, and how its last message went."""
    return await _info(office, await Alerting(office).book.get(id))


@router.put(
    "/{id}", operation_id="put_alert", dependencies=[needs("admin")], responses={201: {"model": AlertSaved}}
)
async def put(office: TheOffice, id: Id, setting: AlertSetting, response: Response) -> AlertSaved:
    """Creates an alert (201) or changes it (200). It tells of what fails from now on; a `warning` says why
    it does not. For a new receiver a `secret` is made, which signs the messages to it and is shown this once."""
    now = office.client.stack.clock.now()
    saved = await Alerting(office).book.put(setting.named(id, now), setting.url)
    if saved.is_new:
        response.status_code = status.HTTP_201_CREATED
    info = await _info(office, saved.alert)
    return AlertSaved(**info.model_dump(), secret=saved.secret)


@router.post("/{id}/secret", operation_id="rotate_alert_secret", dependencies=[needs("admin")])
async def rotate(office: TheOffice, id: Id, request: RotateRequest) -> RotatedSecret:
    """Makes a new secret for the signatures of its messages. For a while they are signed with the one before, too."""
    try:
        overlap = parse_duration(request.overlap)
    except BadDuration as error:
        raise InvalidInput(f"/body/overlap: {str(request.overlap)[:50]!r} {error}") from None
    now = office.client.stack.clock.now()
    return RotatedSecret(secret=await Alerting(office).book.rotate(id, overlap, now))


@router.delete(
    "/{id}",
    operation_id="delete_alert",
    status_code=status.HTTP_204_NO_CONTENT,
    dependencies=[needs("admin")],
)
async def remove(office: TheOffice, id: Id) -> None:
    """Nothing is told any more, nor what waits."""
    await Alerting(office).book.remove(id)


@router.post("/{id}/test", operation_id="test_alert", dependencies=[needs("admin")])
async def test(office: TheOffice, id: Id) -> Tested:
    """Sends a message now, and tells whether it was taken."""
    alerting = Alerting(office)
    try:
        await alerting.test(await alerting.book.get(id))
    except NotDelivered as error:
        return Tested(delivered=False, error=str(error))
    return Tested(delivered=True)


async def _info(office: Office, alert: Alert) -> AlertInfo:
    record = await office.client.stack.records.get(STATE, alert.id)
    state = msgspec.json.decode(record.data, type=State) if record is not None else None
    return AlertInfo.of(alert, state, await _missing_workflow(office, alert))


async def _missing_workflow(office: Office, alert: Alert) -> str | None:
    archive = office.client.stack.archive
    if alert.workflow is None or await archive.definition(alert.workflow) is not None:
        return None
    return (
        f"no workflow '{alert.workflow}' is deployed in this store: there is nothing to tell of until one is"
    )
