"""``/v1/limits``: what operators set for keys, and how much of them is in use."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response, status

from dalsegno.engine.limits import OperatorLimits
from dalsegno.errors import NotFound
from dalsegno.server.access import needs
from dalsegno.server.office import TheOffice
from dalsegno.server.pages import Cursor, Limit, Page, from_cursor, to_cursor
from dalsegno.server.route import Route
from dalsegno.server.schemas.limits import LimitInfo, LimitRequest
from dalsegno.server.schemas.values import PRINTABLE

router = APIRouter(prefix="/limits", tags=["operation"], route_class=Route)

Key = Annotated[
    str,
    Path(min_length=1, max_length=500, pattern=PRINTABLE, description="The limit's key, such as `gmail`."),
]


@router.get("", operation_id="list_limits", dependencies=[needs("read")])
async def limits(office: TheOffice, limit: Limit = 100, cursor: Cursor = None) -> Page[LimitInfo]:
    """Keys that operators set a limit for, of which slots are in use, or for which something waits; by key."""
    views = await OperatorLimits(office.client.stack).page(from_cursor(cursor) or "", limit + 1)
    items = [LimitInfo.of(view) for view in views[:limit]]
    return Page(items=items, next=to_cursor(items[-1].key) if len(views) > limit else None)


@router.get("/{key:whole}", operation_id="get_limit", dependencies=[needs("read")])
async def one(office: TheOffice, key: Key) -> LimitInfo:
    """One key as it is now. A key that nothing has used yet has no limit and no slots in use."""
    return LimitInfo.of(await OperatorLimits(office.client.stack).get(key))


@router.put("/{key:whole}", operation_id="set_limit", dependencies=[needs("admin")])
async def set_limit(office: TheOffice, key: Key, request: LimitRequest) -> LimitInfo:
    """Sets what holds for a key from now on, in every process, before what definitions say. What runs goes on."""
    limits_of = OperatorLimits(office.client.stack)
    return LimitInfo.of(await limits_of.set(key, request.concurrency, request.rate))


@router.delete(
    "/{key:whole}",
    operation_id="delete_limit",
    status_code=status.HTTP_204_NO_CONTENT,
    dependencies=[needs("admin")],
)
async def remove(office: TheOffice, key: Key) -> Response:
    """What definitions say holds again."""
    if not await OperatorLimits(office.client.stack).remove(key):
        raise NotFound(f"no limit is set for the key '{key}'")
    return Response(status_code=status.HTTP_204_NO_CONTENT)
