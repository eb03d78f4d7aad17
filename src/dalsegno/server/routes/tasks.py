"""``/v1/tasks``: remote workers take tasks, say that they are alive, and report."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request

from dalsegno.engine.standin import Answer
from dalsegno.engine.tracing import traceparent_of
from dalsegno.server import deadlines
from dalsegno.server.access import needs
from dalsegno.server.office import TheOffice
from dalsegno.server.remote import hung_up, orchestrator_of
from dalsegno.server.route import Route
from dalsegno.server.schemas.tasks import (
    Accepted,
    Claimed,
    ClaimRequest,
    CompleteRequest,
    FailRequest,
    HeartbeatReply,
    HeartbeatRequest,
    TaskInfo,
)

router = APIRouter(prefix="/tasks", tags=["remote workers"], route_class=Route)

TaskId = Annotated[str, Path(max_length=200, description="As it was handed out.")]


@router.post("/claim", dependencies=[needs("worker")])
async def claim(office: TheOffice, asked: ClaimRequest, request: Request) -> Claimed:
    """Takes tasks; waits for the first one if there is none. What is handed out must be confirmed by a heartbeat, or
    completed, within ten seconds; then the worker has it for as long as its heartbeats come."""
    orchestrator = orchestrator_of(office)
    deadlines.allow(asked.wait)
    found = await orchestrator.claim(
        asked.worker,
        asked.served(),
        asked.limit,
        asked.wait,
        tasks=asked.tasks,
        gone=hung_up(office, request),
    )
    return Claimed(
        tasks=[TaskInfo.of(task, orchestrator.settings, traceparent_of(task.lease)) for task in found]
    )


@router.post("/heartbeat", dependencies=[needs("worker")])
async def heartbeat(office: TheOffice, request: HeartbeatRequest) -> HeartbeatReply:
    """Keeps the tasks that the worker names. It is told which of them are not its own any more."""
    orchestrator = orchestrator_of(office)
    lost = await orchestrator.heartbeat(request.worker, [(each.id, each.fence) for each in request.tasks])
    return HeartbeatReply(lost=lost, lease_seconds=orchestrator.settings.lease)


@router.post("/{task}/complete", dependencies=[needs("worker")])
async def complete(office: TheOffice, task: TaskId, request: CompleteRequest) -> Accepted:
    """The task's output. The same answer again gets the same reply; one that comes too late gets 409 (`DS-350`)."""
    answer = Answer(request.output)
    return Accepted.of(await orchestrator_of(office).settle(task, request.fence, answer))


@router.post("/{task}/fail", dependencies=[needs("worker")])
async def fail(office: TheOffice, task: TaskId, request: FailRequest) -> Accepted:
    """The task failed. Its retries and the error strategy of its node decide what follows."""
    answer = Answer(failure=request.error.failure())
    return Accepted.of(await orchestrator_of(office).settle(task, request.fence, answer))
