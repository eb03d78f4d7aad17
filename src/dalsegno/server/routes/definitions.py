"""``/v1/definitions``: validate, deploy, read, compare and remove definitions, and set aliases."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response, status
from fastapi.responses import StreamingResponse

from dalsegno.errors import NotFound
from dalsegno.model.definition import no_such_version
from dalsegno.server.auth.authentication import caller_of, needs
from dalsegno.server.auth.deploy_permission import check_may_change
from dalsegno.server.executions.definitions import (
    check_source,
    deploy_source,
    detail_of,
    difference_of,
    remove_definition,
)
from dalsegno.server.executions.filters import Cursor, Limit, Page, from_cursor, to_cursor
from dalsegno.server.executions.sources import Source, openapi_body
from dalsegno.server.http.routing import Route
from dalsegno.server.schemas.definitions import (
    AliasTarget,
    Checked,
    DefinitionDetail,
    DefinitionInfo,
    DeployedDefinition,
    Difference,
    VersionInfo,
)
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
