"""``/v1/executions/{id}/inspection`` and ``/v1/programs``: engine internals, for tools such as the command line."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query

from dalsegno.engine.operations.unfinished_versions import unfinished_versions
from dalsegno.engine.worker.directory import directory
from dalsegno.errors import BadConfiguration, NotFound, UsageError
from dalsegno.lang import SnapshotError
from dalsegno.ports.ledger import Examination
from dalsegno.server.auth.authentication import needs
from dalsegno.server.http.responses import whole
from dalsegno.server.http.routing import Route
from dalsegno.server.routes.executions import ExecutionId
from dalsegno.server.schemas.executions import Execution
from dalsegno.server.schemas.inspection import (
    BarrierInfo,
    InspectionInfo,
    MachineInfo,
    ProgramInfo,
    ThingInfo,
    TokenInfo,
    UnfinishedProgram,
)
from dalsegno.server.schemas.values import moment
from dalsegno.server.services import ServerServices, Services

router = APIRouter(tags=["executions"], route_class=Route)


@router.get(
    "/executions/{execution}/inspection", operation_id="inspect_execution", dependencies=[needs("read")]
)
async def inspection(
    services: Services,
    execution: ExecutionId,
    things: Annotated[bool, Query(description="Include what its program awaits, as sentences.")] = False,
    slots: Annotated[bool, Query(description="Include the open slots of each barrier, by name.")] = False,
) -> InspectionInfo:
    """Returns tokens, barriers and the machine of an execution. For inspection: fields may be added."""
    view = await whole(services, execution)
    ledger = services.client.stack.ledger
    examined = await ledger.examine([execution])
    found = examined.executions[0] if examined.executions else None
    missing = await services.client.explanations.open_branches(found) if slots and found is not None else {}
    workers = directory(examined.workers, ledger.now())
    inspection = found.inspection if found is not None else None
    return InspectionInfo(
        execution=Execution.of(view),
        held=inspection is not None,
        now=moment(ledger.now()),
        tokens=[TokenInfo.of(token) for token in inspection.tokens] if inspection is not None else [],
        barriers=[BarrierInfo.of(barrier, missing.get(barrier.id, ())) for barrier in inspection.barriers]
        if inspection is not None
        else [],
        limits=msgspec.to_builtins(inspection.limits) if inspection is not None else [],
        machine=await _machine(services, found, things=things) if found is not None else None,
        served=sorted(workers.queues),
    )


async def _machine(services: ServerServices, found: Examination, *, things: bool) -> MachineInfo | None:
    if found.machine is None:
        return None
    execution = found.inspection.execution.id
    return MachineInfo.of(found.machine, await _things(services, execution) if things else None)


async def _things(services: ServerServices, execution: str) -> list[ThingInfo] | None:
    try:
        picture = await services.client.picture(execution, variables=False)
    except (UsageError, SnapshotError, BadConfiguration):
        return None  # a Python workflow whose module this process does not have
    return [ThingInfo.of(thing) for thing in picture.things] if picture is not None else None


@router.get("/programs", operation_id="list_unfinished_programs", dependencies=[needs("read")])
async def unfinished(services: Services) -> list[UnfinishedProgram]:
    """Lists the versions that unfinished executions run, with the tasks they need, which a new program must
    provide."""
    found = await unfinished_versions(services.client)
    return [UnfinishedProgram.of(each) for each in sorted(found, key=lambda one: (one.workflow, one.version))]


@router.get("/programs/{hash}", operation_id="get_program", dependencies=[needs("read")])
async def program(
    services: Services,
    hash: Annotated[str, Path(max_length=200, description="The content hash of a definition.")],
) -> ProgramInfo:
    """Returns a definition by its content hash, in its stored form."""
    found = await services.client.stack.archive.definition_by_hash(hash)
    if found is None:
        raise NotFound(f"no definition with the content hash {hash} is stored here")
    return ProgramInfo.of(found)
