"""``/v1/definitions``: validate, deploy, read, compare and remove definitions, and set aliases; ``/v1/definition-
approvals`` and ``/v1/protected-names``: which definitions may use credentials, and who may deploy.

A credential may list names of definitions: their versions need an admin's approval to use it. Under a protected
name only keys with the scope ``admin`` may deploy.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response, status
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from dalsegno.engine.secrets.definition_approvals import LONGEST_PATTERN, ProtectedName
from dalsegno.errors import NotFound
from dalsegno.model.definition import no_such_version
from dalsegno.server.auth.authentication import caller_of, needs
from dalsegno.server.executions.definitions import (
    check_may_change,
    check_source,
    deploy_source,
    detail_of,
    difference_of,
    remove_definition,
)
from dalsegno.server.executions.filters import Cursor, Limit, Page, from_cursor, to_cursor
from dalsegno.server.executions.moves import move_chunk
from dalsegno.server.executions.sources import Source, openapi_body
from dalsegno.server.http.routing import Route
from dalsegno.server.schemas.definitions import (
    AliasTarget,
    ApprovedDefinition,
    Checked,
    DefinitionDetail,
    DefinitionInfo,
    DeployedDefinition,
    Difference,
    ListedDefinitions,
    VersionInfo,
)
from dalsegno.server.schemas.moves import MovesReply, MovesRequest
from dalsegno.server.schemas.values import PRINTABLE, moment
from dalsegno.server.services import Services

router = APIRouter(prefix="/definitions", tags=["definitions"], route_class=Route)

WorkflowName = Annotated[
    str, Path(max_length=300, description="The workflow's name; it may hold slashes.", examples=["checkout"])
]
Alias = Annotated[str, Path(max_length=100, description="The alias, such as `stable`.", examples=["stable"])]
Before = Annotated[int | None, Query(ge=1, description="Only versions before this one.")]
VersionName = Annotated[str, Query(max_length=100, description="A number or an alias.")]


@router.post(
    "/validate",
    operation_id="validate_definition",
    dependencies=[needs("read")],
    openapi_extra=openapi_body(),
)
async def validate(services: Services, source: Source) -> Checked:
    """Returns all problems of a document at once. Nothing is stored."""
    return await check_source(services, source)


@router.post(
    "",
    operation_id="deploy_definition",
    status_code=status.HTTP_201_CREATED,
    dependencies=[needs("run")],
    openapi_extra=openapi_body(),
    responses={200: {"model": DeployedDefinition, "description": "It existed already."}},
)
async def deploy(services: Services, source: Source, response: Response, http: Request) -> DeployedDefinition:
    """Stores a version. Deploying the same content again returns the existing version (200 instead of 201). Names
    that a credential lists need the scope `admin` (403)."""
    deployed = await deploy_source(services, caller_of(http), source)
    if deployed.status != "new":
        response.status_code = status.HTTP_200_OK
    return deployed


@router.get("", operation_id="list_definitions", dependencies=[needs("read")])
async def definitions(services: Services, limit: Limit = 100, cursor: Cursor = None) -> Page[DefinitionInfo]:
    """Lists the current version of every workflow, by name."""
    found = await services.client.stack.archive.definitions(from_cursor(cursor) or "", limit + 1)
    items = [DefinitionInfo.of(each) for each in found[:limit]]
    return Page(items=items, next=to_cursor(items[-1].name) if len(found) > limit else None)


@router.get("/{name:whole}/versions", operation_id="list_versions", dependencies=[needs("read")])
async def versions(
    services: Services, name: WorkflowName, limit: Limit = 500, before: Before = None
) -> list[VersionInfo]:
    """Lists versions, newest first. `before` is the number of the last one on the previous page."""
    archive = services.client.stack.archive
    current = await archive.version_of(name)
    if current is None:
        raise NotFound(f"there is no workflow '{name}' in this store")
    found = await archive.versions(name, limit, before)
    aliases = await archive.aliases(name)
    return [
        VersionInfo(
            **DefinitionInfo.of(each).model_dump(),
            current=each.version == current,
            aliases=sorted(alias for alias, version in aliases.items() if version == each.version),
        )
        for each in found
    ]


@router.get(
    "/{name:whole}/diff",
    operation_id="compare_versions",
    dependencies=[needs("read")],
    response_model=Difference,
)
async def diff(
    services: Services, name: WorkflowName, before: VersionName, after: VersionName = "latest"
) -> Difference | StreamingResponse:
    """Returns the changes between two versions, each a number or an alias."""
    return await difference_of(services, name, before, after)


@router.post("/{name:whole}/move", operation_id="move_executions", dependencies=[needs("run")])
async def move(services: Services, name: WorkflowName, request: MovesRequest) -> MovesReply:
    """Lets executions of one version that have not ended go on with another one, newest first; each keeps its id. A
    call moves up to `limit` of them and reports those that cannot go on, with the reasons and the lines of both
    versions; pass `next` as `cursor` to continue. The call can be repeated: what was moved already is left alone. With
    `dry_run` nothing is changed, and with `source` the new version need not be deployed."""
    return MovesReply.of(await move_chunk(services, name, request))


@router.put("/{name:whole}/aliases/{alias:part}", operation_id="set_alias", dependencies=[needs("run")])
async def set_alias(
    services: Services, name: WorkflowName, alias: Alias, target: AliasTarget, http: Request
) -> dict[str, int]:
    """Sets an alias to this version and returns all aliases. Names that a credential lists need the scope `admin`
    (403)."""
    archive = services.client.stack.archive
    await check_may_change(services, caller_of(http), name)
    await archive.set_alias(name, alias, target.version)
    return await archive.aliases(name)


@router.delete(
    "/{name:whole}/aliases/{alias:part}",
    operation_id="delete_alias",
    status_code=204,
    dependencies=[needs("run")],
)
async def remove_alias(services: Services, name: WorkflowName, alias: Alias, http: Request) -> None:
    """Removes an alias. New starts cannot use it any more; running executions continue."""
    await check_may_change(services, caller_of(http), name)
    if not await services.client.stack.archive.remove_alias(name, alias):
        raise NotFound(no_such_version(name, alias))


@router.delete(
    "/{name:whole}/versions/{version}",
    operation_id="delete_version",
    status_code=204,
    dependencies=[needs("admin")],
)
async def remove_version(
    services: Services,
    name: WorkflowName,
    version: Annotated[int, Path(ge=1, le=2**31, description="The version's number.")],
) -> None:
    """Removes one version, unless it is needed by an unfinished execution, a schedule, an alias, or callers that
    start the workflow without a version. Its ended executions stay, but cannot be retried."""
    await remove_definition(services, name, version)


@router.delete(
    "/{name:whole}", operation_id="delete_definition", status_code=204, dependencies=[needs("admin")]
)
async def remove(services: Services, name: WorkflowName) -> None:
    """Removes a workflow with all its versions, unless an unfinished execution, a schedule or an alias needs it."""
    await remove_definition(services, name)


@router.get(
    "/{name:whole}",
    operation_id="get_definition",
    dependencies=[needs("read")],
    response_model=DefinitionDetail,
)
async def definition(
    services: Services,
    name: WorkflowName,
    version: Annotated[
        str | None,
        Query(max_length=100, description="A number or an alias; without it the current version."),
    ] = None,
) -> DefinitionDetail | StreamingResponse:
    """Returns one version with its source: a number, an alias, or the current one."""
    return await detail_of(services, name, version)


# -- definition approvals ------------------------------------------------------------------------------------

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
