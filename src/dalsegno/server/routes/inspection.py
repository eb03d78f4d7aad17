"""``/v1/executions/{id}/inspection`` and ``/v1/programs``: for whoever looks closely, such as the command line."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query

from dalsegno.engine.processes import dead_among
from dalsegno.errors import BadConfiguration, NotFound, UsageError
from dalsegno.lang import SnapshotError
from dalsegno.model.execution import SCRIPTED, ExecutionView
from dalsegno.server.access import needs
from dalsegno.server.large_values import whole
from dalsegno.server.office import Office, TheOffice
from dalsegno.server.route import Route
from dalsegno.server.routes.executions import ExecutionId
from dalsegno.server.schemas.executions import Execution
from dalsegno.server.schemas.inspection import (
    BarrierInfo,
    InspectionInfo,
    MachineInfo,
    ProgramInfo,
    ThingInfo,
    TokenInfo,
)
from dalsegno.server.schemas.values import moment

router = APIRouter(tags=["executions"], route_class=Route)


class _WorkerInfo(msgspec.Struct):
    queues: tuple[str, ...] = ()


@router.get(
    "/executions/{execution}/inspection", operation_id="inspect_execution", dependencies=[needs("read")]
)
async def inspection(
    office: TheOffice,
    execution: ExecutionId,
    things: Annotated[bool, Query(description="With what its program awaits, in sentences.")] = False,
    slots: Annotated[bool, Query(description="With what has not arrived at each barrier, by name.")] = False,
) -> InspectionInfo:
    """Tokens, barriers and the machine of an execution. Made for looking closely: fields may be added."""
    view = await whole(office, execution)
    found = await office.client.stack.ledger.inspect(execution)
    missing = await office.client.open_slots(found) if slots and found is not None else {}
    return InspectionInfo(
        execution=Execution.of(view),
        held=found is not None,
        now=moment(office.client.stack.clock.now()),
        tokens=[TokenInfo.of(token) for token in found.tokens] if found is not None else [],
        barriers=[BarrierInfo.of(barrier, missing.get(barrier.id, ())) for barrier in found.barriers]
        if found is not None
        else [],
        limits=msgspec.to_builtins(found.limits) if found is not None else [],
        machine=await _machine(office, view, things=things) if found is not None else None,
        served=sorted(await _served(office)),
    )


async def _machine(office: Office, view: ExecutionView, *, things: bool) -> MachineInfo | None:
    machine = await office.client.stack.ledger.machine(view.id) if view.kind in SCRIPTED else None
    if machine is None:
        return None
    return MachineInfo.of(machine, await _things(office, view.id) if things else None)


async def _things(office: Office, execution: str) -> list[ThingInfo] | None:
    try:
        picture = await office.client.picture(execution, variables=False)
    except (UsageError, SnapshotError, BadConfiguration):
        return None  # a Python workflow whose module this process does not have
    return [ThingInfo.of(thing) for thing in picture.things] if picture is not None else None


async def _served(office: Office) -> set[str]:
    ledger = office.client.stack.ledger
    workers, now = await ledger.workers(), ledger.now()
    dead = dead_among([worker.id for worker in workers])
    served: set[str] = set()
    for worker in workers:
        if worker.expires_at > now and worker.id not in dead:
            served.update(msgspec.json.decode(worker.info, type=_WorkerInfo).queues if worker.info else ())
            served.add("system")
    return served


@router.get("/programs/{hash}", operation_id="get_program", dependencies=[needs("read")])
async def program(
    office: TheOffice,
    hash: Annotated[str, Path(max_length=200, description="The content hash of a definition.")],
) -> ProgramInfo:
    """A definition by its content hash, in its stored form."""
    found = await office.client.stack.archive.definition_by_hash(hash)
    if found is None:
        raise NotFound(f"no definition with the content hash {hash} is stored here")
    return ProgramInfo.of(found)
