"""``/v1/protected-names``: names under which only keys with the scope ``admin`` deploy."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from dalsegno.engine.secrets.definition_approvals import LONGEST_PATTERN, ProtectedName
from dalsegno.errors import NotFound
from dalsegno.server.access import caller_of, needs
from dalsegno.server.office import TheOffice
from dalsegno.server.route import Route
from dalsegno.server.schemas.values import PRINTABLE, moment

router = APIRouter(prefix="/protected-names", tags=["credentials"], route_class=Route)

Name = Annotated[
    str,
    Path(
        min_length=1,
        max_length=LONGEST_PATTERN,
        pattern=PRINTABLE,
        description="A workflow's name, or a pattern such as `billing-*`.",
        examples=["billing"],
    ),
]


EXAMPLE: dict[str, Any] = {
    "name": "billing",
    "credential": None,
    "protected_by": "ann",
    "protected_at": "2030-01-31T09:00:00Z",
}


class ProtectedNameInfo(BaseModel):
    """A name, or a pattern of names, under which only admins deploy."""

    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE})

    name: str
    credential: str | None = Field(
        description="The credential that lists it; null where an admin protects it."
    )
    protected_by: str | None = Field(description="The admin.")
    protected_at: datetime | None

    @classmethod
    def of(cls, protected: ProtectedName) -> ProtectedNameInfo:
        at = moment(protected.protected_at) if protected.protected_at is not None else None
        return cls(
            name=protected.name,
            credential=protected.credential,
            protected_by=protected.protected_by,
            protected_at=at,
        )


class ProtectedNameList(BaseModel):
    items: list[ProtectedNameInfo]


@router.get("", operation_id="list_protected_names", dependencies=[needs("read")])
async def protected_names(office: TheOffice) -> ProtectedNameList:
    """Names that admins protect, and those that credentials list."""
    found = await office.engine.vault.protected_names.all()
    return ProtectedNameList(items=[ProtectedNameInfo.of(each) for each in found])


@router.put("/{name:whole}", operation_id="protect_name", dependencies=[needs("admin")])
async def protect(office: TheOffice, name: Name, http: Request) -> ProtectedNameInfo:
    """From now on only keys with the scope `admin` deploy under this name or below it with `/`, and change its aliases.
    What is deployed stays. Again is the same."""
    return ProtectedNameInfo.of(await office.engine.vault.protected_names.protect(name, caller_of(http).name))


@router.delete("/{name:whole}", operation_id="unprotect_name", status_code=204, dependencies=[needs("admin")])
async def unprotect(office: TheOffice, name: Name) -> None:
    """Ends the protection by an admin. A name that a credential lists stays protected."""
    if not await office.engine.vault.protected_names.unprotect(name):
        raise NotFound(f"no admin protects the name '{name}'")
