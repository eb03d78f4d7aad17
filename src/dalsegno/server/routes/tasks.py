"""``/v1/tasks``: the protocol of remote workers (claim, heartbeat, complete, fail), and open tasks settled by
people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from dalsegno.core.manual_tasks import Action
from dalsegno.engine.operations.manual_tasks import ByHand, OpenTask
from dalsegno.engine.remote.sessions import Claimant
from dalsegno.engine.remote.task_proxy import Answer
from dalsegno.model.ids import LONGEST_ID
from dalsegno.server.auth.authentication import caller_of, needs
from dalsegno.server.executions.filters import Cursor, Limit, Page, from_cursor, to_cursor
from dalsegno.server.http import deadlines
from dalsegno.server.http.routing import Route
from dalsegno.server.schemas.tasks import (
    Accepted,
    Claimed,
    ClaimRequest,
    CompleteRequest,
    FailRequest,
    HandCompleteRequest,
    HandFailRequest,
    HandRequest,
    HandSettled,
    HeartbeatReply,
    HeartbeatRequest,
    OpenTaskInfo,
    TaskInfo,
)
from dalsegno.server.services import ServerServices, Services

tasks_router = APIRouter(prefix="/tasks", tags=["remote workers"], route_class=Route)

TaskId = Annotated[str, Path(max_length=200, description="The id as it was handed out.")]


@tasks_router.post("/claim", operation_id="claim_tasks", dependencies=[needs("worker")])
async def claim(services: Services, asked: ClaimRequest, request: Request) -> Claimed:
    """Claims tasks; waits for the first one if there is none. A claimed task must be confirmed by a heartbeat, or
    completed, within ten seconds; then the worker holds it as long as it sends heartbeats. A queue that the key
    does not cover is refused (403, `DS-323`)."""
    orchestrator = services.remote_workers()
    deadlines.allow(asked.wait)
    with services.usage.waiting(caller_of(request)):
        found = await orchestrator.claim(
            asked.worker,
            asked.served(),
            asked.limit,
            asked.wait,
            tasks=asked.tasks,
            gone=_client_gone(services, request),
            by=_claimant_of(request),
        )
    return Claimed(tasks=[TaskInfo.of(task, orchestrator.settings) for task in found])


@tasks_router.post("/heartbeat", operation_id="heartbeat_tasks", dependencies=[needs("worker")])
async def heartbeat(services: Services, asked: HeartbeatRequest, request: Request) -> HeartbeatReply:
    """Extends the leases of the tasks that the worker names, and reclaims those that it omits. The reply lists
    named tasks that the worker does not hold, or never held: it holds only tasks that it claimed with the same
    key."""
    orchestrator = services.remote_workers()
    named = [(each.id, each.fence) for each in asked.tasks]
    dropped = [(each.id, each.fence) for each in asked.dropped]
    lost = await orchestrator.heartbeat(asked.worker, named, _claimant_of(request), dropped)
    return HeartbeatReply(lost=lost, lease_seconds=orchestrator.settings.lease)


@tasks_router.post("/{task}/complete", operation_id="complete_task", dependencies=[needs("worker")])
async def complete(services: Services, task: TaskId, given: CompleteRequest, request: Request) -> Accepted:
    """Completes the task with its output. Repeating the same answer gets the same reply; a late answer gets 409
    (`DS-350`); an answer for a task that was claimed with another key gets 403 (`DS-323`)."""
    answer = Answer(given.output)
    return Accepted.of(
        await services.remote_workers().settle(task, given.fence, answer, _claimant_of(request))
    )


@tasks_router.post("/{task}/fail", operation_id="fail_task", dependencies=[needs("worker")])
async def fail(services: Services, task: TaskId, given: FailRequest, request: Request) -> Accepted:
    """Fails the task. Its retry policy and the error strategy of its node decide what follows."""
    answer = Answer(failure=given.error.failure())
    return Accepted.of(
        await services.remote_workers().settle(task, given.fence, answer, _claimant_of(request))
    )


manual_tasks_router = APIRouter(prefix="/tasks", tags=["operation"], route_class=Route)

OfExecution = Annotated[str | None, Query(max_length=LONGEST_ID, description="Only tasks of this execution.")]
OfQueue = Annotated[str | None, Query(max_length=200, description="Only tasks of this queue.")]


@manual_tasks_router.get("", operation_id="list_tasks", dependencies=[needs("read")])
async def open_tasks(
    services: Services,
    execution: OfExecution = None,
    queue: OfQueue = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[OpenTaskInfo]:
    """Lists pending and running tasks and nodes, those of the newest execution first. A page ends with an
    execution, and examines 1,000 of them at most: a short or empty page is not the last while it has a `next`."""
    page = await _hand(services).page(execution, queue, from_cursor(cursor), limit)
    items = [OpenTaskInfo.of(task) for task in page.tasks]
    return Page(items=items, next=to_cursor(page.after) if page.after is not None else None)


@manual_tasks_router.get("/{task}", operation_id="get_task", dependencies=[needs("read")])
async def one(services: Services, task: TaskId) -> OpenTaskInfo:
    """Returns one open task with its input. A task that has ended gets 409."""
    return OpenTaskInfo.of(await _hand(services).show(task))


@manual_tasks_router.post(
    "/{task}/by-hand/complete", operation_id="complete_task_by_hand", dependencies=[needs("admin")]
)
async def complete_by_hand(
    services: Services, task: TaskId, given: HandCompleteRequest, request: Request
) -> HandSettled:
    """Completes the task with this output, whichever worker holds it; the worker's later answer is refused (409,
    `DS-350`). An output that does not match what a remote task `returns` is refused (422); a task that has ended
    gets 409. The history records who did it, and why."""
    by = _who(request, given)
    done = await _hand(services).complete(task, given.output, by, given.reason)
    return _settled(done, "complete", by)


@manual_tasks_router.post(
    "/{task}/by-hand/fail", operation_id="fail_task_by_hand", dependencies=[needs("admin")]
)
async def fail_by_hand(
    services: Services, task: TaskId, given: HandFailRequest, request: Request
) -> HandSettled:
    """Fails the task. With `retry` its retry policy decides what follows; without, its error strategy does."""
    by = _who(request, given)
    done = await _hand(services).fail(task, given.message, retry=given.retry, by=by, reason=given.reason)
    return _settled(done, "fail", by)


@manual_tasks_router.post(
    "/{task}/by-hand/skip", operation_id="skip_task_by_hand", dependencies=[needs("admin")]
)
async def skip(services: Services, task: TaskId, given: HandRequest, request: Request) -> HandSettled:
    """Skips the task. A node of a graph is SKIPPED, with all nodes that only it leads to. A script or a Python
    workflow gets null for it."""
    by = _who(request, given)
    return _settled(await _hand(services).skip(task, by, given.reason), "skip", by)


@manual_tasks_router.post(
    "/{task}/by-hand/requeue", operation_id="requeue_task_by_hand", dependencies=[needs("admin")]
)
async def requeue(services: Services, task: TaskId, given: HandRequest, request: Request) -> HandSettled:
    """Takes the task from its worker, whose answer is refused from now on, and offers it again as the same attempt.
    A task that waits for its next attempt is tried at once."""
    by = _who(request, given)
    return _settled(await _hand(services).requeue(task, by, given.reason), "requeue", by)


def _hand(services: ServerServices) -> ByHand:
    return ByHand(services.engine)


def _who(request: Request, given: HandRequest) -> str | None:
    """Return the actor for the history. It includes the name of the key, if there is one."""
    caller = caller_of(request)
    if caller.key is None:
        return given.by
    return caller.name if given.by is None else f"{given.by} (key {caller.name})"


def _settled(task: OpenTask, action: Action, by: str | None) -> HandSettled:
    return HandSettled(id=task.id, execution=task.execution, node=task.node, action=action, by=by)


def _claimant_of(request: Request) -> Claimant:
    """Return the key of a remote worker's call, with the queues it may serve."""
    caller = caller_of(request)
    is_operator = caller.key is None or "admin" in caller.scopes
    return Claimant(caller.key or "", caller.name, caller.queues, is_operator)


def _client_gone(services: ServerServices, request: Request) -> Callable[[], Awaitable[bool]]:
    """Return a check that is true once the caller has disconnected or the server stops."""

    async def gone() -> bool:
        return services.closing.is_set() or await request.is_disconnected()

    return gone
