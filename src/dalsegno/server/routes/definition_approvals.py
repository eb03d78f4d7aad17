"""``/v1/definition-approvals``: which definitions may use the credentials that list their names."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request

from dalsegno.server.access import caller_of, needs
from dalsegno.server.office import TheOffice
from dalsegno.server.route import Route
from dalsegno.server.schemas.definition_approvals import ApprovedDefinition, ListedDefinitions

router = APIRouter(prefix="/definition-approvals", tags=["credentials"], route_class=Route)

Hash = Annotated[str, Path(max_length=100, description="The definition's content hash.")]


@router.get("", operation_id="list_definition_approvals", dependencies=[needs("read")])
async def listed(office: TheOffice) -> ListedDefinitions:
    """Current and aliased versions whose names a credential lists, and whether they are approved."""
    approvals = office.client.definition_approvals
    return ListedDefinitions.of(await approvals.listed(), await approvals.grace())


@router.delete("/grace", operation_id="end_definition_grace", status_code=204, dependencies=[needs("admin")])
async def end_grace(office: TheOffice) -> None:
    """From now on everything needs an approval, also what is older than approvals."""
    await office.client.definition_approvals.end_grace()


@router.put("/{hash}", operation_id="approve_definition", dependencies=[needs("admin")])
async def approve(office: TheOffice, hash: Hash, http: Request) -> ApprovedDefinition:
    """Lets this version use the credentials that list its name. Again is the same."""
    found = await office.client.approve_definition(hash, caller_of(http).name)
    return ApprovedDefinition(workflow=found.name, version=found.version, hash=found.hash)


@router.delete(
    "/{hash}", operation_id="withdraw_definition_approval", status_code=204, dependencies=[needs("admin")]
)
async def withdraw(office: TheOffice, hash: Hash) -> None:
    """Its runs get none of these credentials from now on."""
    await office.client.withdraw_approval(hash)
