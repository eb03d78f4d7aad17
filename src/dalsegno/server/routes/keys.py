"""``/v1/keys``: make, list and revoke API keys."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, status

from dalsegno.server.access import caller_of, needs
from dalsegno.server.office import TheOffice
from dalsegno.server.pages import Cursor, Limit, Page, from_cursor, to_cursor
from dalsegno.server.quotas import read_quotas
from dalsegno.server.route import Route
from dalsegno.server.schemas.access import KeyChange, KeyInfo, KeyRequest, NewKey

router = APIRouter(prefix="/keys", tags=["access"], route_class=Route)

KeyId = Annotated[str, Path(max_length=100, description="The id of a key, or its name.")]


@router.post(
    "", operation_id="create_key", status_code=status.HTTP_201_CREATED, dependencies=[needs("admin")]
)
async def add(office: TheOffice, request: KeyRequest, http: Request) -> NewKey:
    """Makes a key and shows it this once. The first key closes an open server. One for remote workers (scope `worker`)
    names the queues whose tasks it may take, or `*`."""
    by = caller_of(http).name
    quotas = read_quotas(request.quotas.named() if request.quotas is not None else {})
    key, text = await office.doorman.book.add(
        request.name, request.scopes, request.expires, by, request.queues, quotas
    )
    office.doorman.look_again()
    return NewKey(**KeyInfo.of(key).model_dump(), key=text)


@router.get("", operation_id="list_keys", dependencies=[needs("admin")])
async def keys(
    office: TheOffice,
    revoked: Annotated[bool, Query(description="Also those that were revoked.")] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[KeyInfo]:
    """All keys by their ids, without secrets; none of them can be shown again. Each with its quotas and what it uses of
    them: of rates and streams, on the server that answers."""
    after = from_cursor(cursor) or ""
    found = sorted(await office.doorman.book.all(), key=lambda key: key.id)
    found = [key for key in found if key.id > after and (revoked or key.revoked_at is None)]
    archive, usage = office.client.stack.archive, office.usage
    items = [KeyInfo.of(key, await usage.usage_of(archive, key.id)) for key in found[:limit]]
    return Page(items=items, next=to_cursor(items[-1].id) if len(found) > limit else None)


@router.patch("/{key}", operation_id="update_key", dependencies=[needs("admin")])
async def change(office: TheOffice, key: KeyId, request: KeyChange) -> KeyInfo:
    """Changes queues and quotas of a key: here at once, on other servers of this store within seconds."""
    found = await office.doorman.book.find(key)
    quotas = request.quotas.named() if request.quotas is not None else {}
    changed = await office.doorman.book.set(found.id, queues=request.queues, quotas=quotas)
    office.doorman.look_again()
    return KeyInfo.of(changed)


@router.delete("/{key}", operation_id="revoke_key", dependencies=[needs("admin")])
async def revoke(office: TheOffice, key: KeyId) -> KeyInfo:
    """Nobody comes in with it any more: here at once, on other servers of this store within seconds."""
    found = await office.doorman.book.find(key)
    revoked = await office.doorman.book.revoke(found.id)
    office.doorman.look_again()
    return KeyInfo.of(revoked)
