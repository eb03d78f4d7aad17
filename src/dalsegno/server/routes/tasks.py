"""``/v1/tasks``: remote workers take tasks, say that they are alive, and report."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request

from dalsegno.engine.standin import Answer
from dalsegno.engine.tracing import traceparent_of
from dalsegno.server import deadlines
from dalsegno.server.access import caller_of, needs
from dalsegno.server.office import TheOffice
from dalsegno.server.remote import claimant_of, hung_up, orchestrator_of
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


@router.post("/claim", operation_id="claim_tasks", dependencies=[needs("worker")])
async def claim(office: TheOffice, asked: ClaimRequest, request: Request) -> Claimed:
    """Takes tasks; waits for the first one if there is none. What is handed out must be confirmed by a heartbeat, or
    completed, within ten seconds; then the worker has it for as long as its heartbeats come. A queue that the key is
    not for is refused (403, `DS-323`)."""
    orchestrator = orchestrator_of(office)
    deadlines.allow(asked.wait)
    with office.usage.waiting(caller_of(request)):
        found = await orchestrator.claim(
            asked.worker,
            asked.served(),
            asked.limit,
            asked.wait,
            tasks=asked.tasks,
            gone=hung_up(office, request),
            by=claimant_of(request),
        )
    return Claimed(
        tasks=[TaskInfo.of(task, orchestrator.settings, traceparent_of(task.lease)) for task in found]
    )


@router.post("/heartbeat", operation_id="heartbeat_tasks", dependencies=[needs("worker")])
async def heartbeat(office: TheOffice, asked: HeartbeatRequest, request: Request) -> HeartbeatReply:
    """Keeps the tasks that the worker names, and takes back those that it has dropped. It is told which of the named
    ones are not its own any more, or never were: a worker has only the tasks that it claimed with the same key."""
    orchestrator = orchestrator_of(office)
    named = [(each.id, each.fence) for each in asked.tasks]
    dropped = [(each.id, each.fence) for each in asked.dropped]
    lost = await orchestrator.heartbeat(asked.worker, named, claimant_of(request), dropped)
    return HeartbeatReply(lost=lost, lease_seconds=orchestrator.settings.lease)


@router.post("/{task}/complete", operation_id="complete_task", dependencies=[needs("worker")])
async def complete(office: TheOffice, task: TaskId, given: CompleteRequest, request: Request) -> Accepted:
    """The task's output. The same answer again gets the same reply; one that comes too late gets 409 (`DS-350`); one
    for a task that was claimed with another key gets 403 (`DS-323`)."""
    answer = Answer(given.output)
    return Accepted.of(await orchestrator_of(office).settle(task, given.fence, answer, claimant_of(request)))


@router.post("/{task}/fail", operation_id="fail_task", dependencies=[needs("worker")])
async def fail(office: TheOffice, task: TaskId, given: FailRequest, request: Request) -> Accepted:
    """The task failed. Its retries and the error strategy of its node decide what follows."""
    answer = Answer(failure=given.error.failure())
    return Accepted.of(await orchestrator_of(office).settle(task, given.fence, answer, claimant_of(request)))
