"""``/v1/audit``: who changed what."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter

from dalsegno.errors import InvalidInput
from dalsegno.server.access import needs
from dalsegno.server.audit import LOG, Entry
from dalsegno.server.office import TheOffice
from dalsegno.server.pages import Cursor, Limit, Page, from_cursor, to_cursor
from dalsegno.server.route import Route
from dalsegno.server.schemas.access import AuditEntry

router = APIRouter(prefix="/audit", tags=["access"], route_class=Route)


@router.get("", operation_id="list_audit_entries", dependencies=[needs("admin")])
async def audit(office: TheOffice, limit: Limit = 100, cursor: Cursor = None) -> Page[AuditEntry]:
    """Every call that may have changed something, the newest first: who, what, when, from where, and the answer."""
    await office.audit.flush()
    found = await office.client.stack.records.entries(LOG, _before(cursor), limit + 1)
    items = [AuditEntry.of(each.number, msgspec.json.decode(each.data, type=Entry)) for each in found[:limit]]
    return Page(items=items, next=to_cursor(str(items[-1].number)) if len(found) > limit else None)


def _before(cursor: str | None) -> int | None:
    place = from_cursor(cursor)
    if place is None:
        return None
    if not (place.isascii() and place.isdecimal() and len(place) < 19):
        raise InvalidInput("'cursor' is none that this server gave out; leave it away to begin anew")
    return int(place)
