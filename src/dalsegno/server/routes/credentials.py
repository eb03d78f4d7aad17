"""``/v1/credentials``: set, look at without values, remove, rotate."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response, status

from dalsegno.server.access import needs
from dalsegno.server.deliveries import book_of
from dalsegno.server.office import TheOffice
from dalsegno.server.pages import Cursor, Limit, Page, from_cursor, to_cursor
from dalsegno.server.route import Route
from dalsegno.server.schemas.credentials import CredentialInfo, CredentialSetting, RotationReply

router = APIRouter(prefix="/credentials", tags=["credentials"], route_class=Route)

Name = Annotated[str, Path(max_length=100, description="The credential's name.", examples=["crm-key"])]


@router.get("", operation_id="list_credentials", dependencies=[needs("read")])
async def credentials(office: TheOffice, limit: Limit = 100, cursor: Cursor = None) -> Page[CredentialInfo]:
    """All credentials by name, without their values."""
    found = await office.engine.vault.page(from_cursor(cursor) or "", limit + 1)
    items = [CredentialInfo.of(each) for each in found[:limit]]
    return Page(items=items, next=to_cursor(items[-1].name) if len(found) > limit else None)


@router.post("/rotate", operation_id="rotate_credentials", dependencies=[needs("admin")])
async def rotate(office: TheOffice) -> RotationReply:
    """Seals every credential anew with the server's first key. It may be called again at any time."""
    return RotationReply.of(await office.engine.vault.rotate())


@router.get("/{name}", operation_id="get_credential", dependencies=[needs("read")])
async def credential(office: TheOffice, name: Name) -> CredentialInfo:
    """One credential, without its values: nothing gives those out."""
    return CredentialInfo.of(await office.engine.vault.info(name))


@router.put(
    "/{name}",
    operation_id="put_credential",
    dependencies=[needs("admin")],
    responses={201: {"model": CredentialInfo}},
)
async def put(
    office: TheOffice, name: Name, setting: CredentialSetting, response: Response
) -> CredentialInfo:
    """Creates a credential (201) or changes it (200). Workers use what is set from their next run on."""
    info, is_new = await office.engine.vault.put(setting.named(name))
    if is_new:
        response.status_code = status.HTTP_201_CREATED
    return CredentialInfo.of(info)


@router.delete("/{name}", operation_id="delete_credential", status_code=204, dependencies=[needs("admin")])
async def remove(office: TheOffice, name: Name) -> None:
    """Removes it. Runs that need it fail from now on. What a webhook checks its deliveries with stays (409)."""
    await book_of(office).remove_credential(name)
