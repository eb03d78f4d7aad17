"""``/v1/definition-approvals`` and ``/v1/protected-names``: which definitions may use credentials, and who may deploy.

A credential may list names of definitions: their versions need an admin's approval to use it. Under a protected
name only keys with the scope ``admin`` may deploy.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from dalsegno.engine.secrets.definition_approvals import LONGEST_PATTERN, ProtectedName
from dalsegno.errors import NotFound
from dalsegno.server.auth.authentication import caller_of, needs
from dalsegno.server.http.routing import Route
from dalsegno.server.schemas.definitions import ApprovedDefinition, ListedDefinitions
from dalsegno.server.schemas.values import PRINTABLE, moment
from dalsegno.server.services import Services

definition_approvals_router = APIRouter(
    prefix="/definition-approvals", tags=["credentials"], route_class=Route
)

Hash = Annotated[str, Path(max_length=100, description="The definition's content hash.")]


@definition_approvals_router.get("", operation_id="list_definition_approvals", dependencies=[needs("read")])
async def listed(services: Services) -> ListedDefinitions:
    """Lists current and aliased versions whose names a credential lists, and whether they are approved."""
    approvals = services.client.definition_approvals
    return ListedDefinitions.of(await approvals.listed(), await approvals.grace())


@definition_approvals_router.delete(
    "/grace", operation_id="end_definition_grace", status_code=204, dependencies=[needs("admin")]
)
async def end_grace(services: Services) -> None:
    """Ends the grace period: from now on every version needs an approval, also those older than approvals."""
    await services.client.definition_approvals.end_grace()


@definition_approvals_router.put("/{hash}", operation_id="approve_definition", dependencies=[needs("admin")])
async def approve(services: Services, hash: Hash, http: Request) -> ApprovedDefinition:
    """Lets this version use the credentials that list its name. Repeating the call changes nothing."""
    found = await services.client.approve_definition(hash, caller_of(http).name)
    return ApprovedDefinition(workflow=found.name, version=found.version, hash=found.hash)


@definition_approvals_router.delete(
    "/{hash}", operation_id="withdraw_definition_approval", status_code=204, dependencies=[needs("admin")]
)
async def withdraw(services: Services, hash: Hash) -> None:
    """Withdraws the approval. Runs of this version get none of these credentials from now on."""
    await services.client.withdraw_approval(hash)


protected_names_router = APIRouter(prefix="/protected-names", tags=["credentials"], route_class=Route)

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


@protected_names_router.get("", operation_id="list_protected_names", dependencies=[needs("read")])
async def protected_names(services: Services) -> ProtectedNameList:
    """Lists the names that admins protect, and those that credentials list."""
    found = await services.engine.vault.protected_names.all()
    return ProtectedNameList(items=[ProtectedNameInfo.of(each) for each in found])


@protected_names_router.put("/{name:whole}", operation_id="protect_name", dependencies=[needs("admin")])
async def protect(services: Services, name: Name, http: Request) -> ProtectedNameInfo:
    """Protects a name: from now on only keys with the scope `admin` deploy under this name or below it with `/`,
    and change its aliases. Existing versions stay. Repeating the call changes nothing."""
    return ProtectedNameInfo.of(
        await services.engine.vault.protected_names.protect(name, caller_of(http).name)
    )


@protected_names_router.delete(
    "/{name:whole}", operation_id="unprotect_name", status_code=204, dependencies=[needs("admin")]
)
async def unprotect(services: Services, name: Name) -> None:
    """Ends the protection by an admin. A name that a credential lists stays protected."""
    if not await services.engine.vault.protected_names.unprotect(name):
        raise NotFound(f"the name '{name}' is not protected by an admin")
