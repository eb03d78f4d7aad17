"""``/v1/executions``: start, look, command."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response, status

from dalsegno.errors import InvalidInput
from dalsegno.model.ids import repeated_execution_id
from dalsegno.server import deadlines
from dalsegno.server.access import Caller, caller_of, needs
from dalsegno.server.filters import AskedFilter, cursor_after, place_at
from dalsegno.server.inline import start_inline
from dalsegno.server.large_values import is_large, outline, whole, with_results
from dalsegno.server.office import Office, TheOffice
from dalsegno.server.pages import Cursor, Limit, Page
from dalsegno.server.repeating import USED_BEFORE, IdempotencyKey, answer_for, one_key, starter_of
from dalsegno.server.replies import streamed_object
from dalsegno.server.route import Route
from dalsegno.server.schemas.executions import (
    EXAMPLE_ID,
    BatchReply,
    BatchRequest,
    CancelRequest,
    EventInfo,
    EventPage,
    Execution,
    ExecutionInfo,
    NodeInfo,
    PictureInfo,
    RerunRequest,
    SignalRequest,
    StartRequest,
    WaitInfo,
    Why,
)
from dalsegno.server.starts import options_of, plan_of, run_batch, start_named
from dalsegno.server.stream import check_seen
from dalsegno.server.tracing import TraceParent

router = APIRouter(prefix="/executions", tags=["executions"], route_class=Route)

ExecutionId = Annotated[
    str, Path(max_length=100, description="The `id` of the execution.", examples=[EXAMPLE_ID])
]


@router.post(
    "",
    operation_id="start_execution",
    status_code=status.HTTP_201_CREATED,
    dependencies=[needs("run")],
    responses=USED_BEFORE,
)
async def start(
    office: TheOffice,
    request: StartRequest,
    response: Response,
    http: Request,
    idempotency_key: IdempotencyKey = None,
    traceparent: TraceParent = None,
) -> Execution:
    """Starts a workflow. With a key that was used before for it, that execution is returned (200 instead of 201); with
    such a key and another input, definition, version or delay nothing is done (409)."""
    caller = caller_of(http)
    options = options_of(request, one_key(idempotency_key, request.idempotency_key), traceparent)
    if request.definition is None:
        return await answer_for(office, await start_named(office, caller, request, options), response)
    if request.workflow is not None:
        raise InvalidInput("/body: give either 'workflow' or 'definition'")
    if request.version is not None:
        raise InvalidInput("/body/version: 'definition' is a version of its own; leave 'version' away")
    office.usage.count_starts(caller)
    plan = plan_of(office, request)
    started = await start_inline(office, caller, request.definition, request.input, options, plan)
    return await answer_for(office, started, response)


@router.post("/batch", operation_id="start_executions", dependencies=[needs("run")])
async def start_batch(
    office: TheOffice, request: BatchRequest, http: Request, traceparent: TraceParent = None
) -> BatchReply:
    """Starts up to 1,000 workflows in one call. Each start is done or refused for itself, and `results` has their
    outcomes in the same order; a body that is malformed is refused as a whole (422), and nothing is done. Every start
    counts for the key's quotas. Give each start an `idempotency_key`: then a batch that got no reply is sent again as
    it was, and nothing is started twice."""
    return BatchReply(results=await run_batch(office, caller_of(http), request.starts, traceparent))


@router.get("", operation_id="list_executions", dependencies=[needs("read")])
async def executions(
    office: TheOffice, where: AskedFilter, limit: Limit = 50, cursor: Cursor = None
) -> Page[ExecutionInfo]:
    """Newest first. All filters that are given must fit; of several states, kinds or relations one."""
    found = await office.client.executions(where, place_at(cursor), limit + 1)
    items = [ExecutionInfo.of(view) for view in found[:limit]]
    return Page(items=items, next=cursor_after(found[limit - 1]) if len(found) > limit else None)


@router.get("/{execution}", operation_id="get_execution", dependencies=[needs("read")])
async def one(office: TheOffice, execution: ExecutionId) -> Execution:
    """One execution, with what went in and what came out."""
    return Execution.of(await whole(office, execution))


@router.get("/{execution}/nodes", operation_id="get_execution_nodes", dependencies=[needs("read")])
async def nodes(office: TheOffice, execution: ExecutionId) -> dict[str, NodeInfo]:
    """State and runs of every node; of a script, of every task by its name."""
    await outline(office, execution)
    found = await office.client.nodes(execution)
    return {name: NodeInfo.of(summary) for name, summary in found.items()}


@router.get(
    "/{execution}/results",
    operation_id="get_execution_results",
    dependencies=[needs("read")],
    response_model=dict[str, Any],
)
async def results(office: TheOffice, execution: ExecutionId) -> Any:
    """Every node's output by `$node`; before the end, what finished branches have left."""
    view = await with_results(office, execution)
    if not is_large(view):
        return dict(await office.client.stored_context(execution))
    return streamed_object(await office.client.context_readers(execution), deadlines.hanging_up())


@router.get("/{execution}/events", operation_id="list_execution_events", dependencies=[needs("read")])
async def events(
    office: TheOffice,
    execution: ExecutionId,
    after: Annotated[int, Query(ge=0, le=2**53, description="Number of the last event seen.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many at most.")] = 200,
) -> EventPage:
    """The history from any number on, in order. `last` is what to give as `after` next; a number that no event has yet
    is refused."""
    check_seen(await outline(office, execution), after)
    found = [EventInfo.of(event) for event in await office.client.events(execution, after, limit)]
    return EventPage(events=found, last=found[-1].seq if found else after)


@router.get("/{execution}/why", operation_id="explain_execution", dependencies=[needs("read")])
async def why(office: TheOffice, execution: ExecutionId) -> Why:
    """What exactly it waits for: which timer, signal, barrier, queue, limit or retry."""
    view = await office.client.outline(execution)
    found = [] if view.ended_at is not None else await office.client.why(execution)
    return Why(id=view.id, state=view.state, reasons=[WaitInfo.of(wait) for wait in found])


@router.get("/{execution}/picture", operation_id="get_execution_picture", dependencies=[needs("read")])
async def picture(office: TheOffice, execution: ExecutionId) -> PictureInfo | None:
    """Of a script or Python workflow in flight: its line, what it awaits, its variables."""
    await with_results(office, execution)
    seen = await office.client.picture(execution)
    if seen is None:
        return None
    return PictureInfo(line=seen.line, text=seen.source, awaits=seen.awaiting, variables=seen.variables)


# -- commands -------------------------------------------------------------------------------------------------


@router.post(
    "/{execution}/signals",
    operation_id="signal_execution",
    status_code=status.HTTP_202_ACCEPTED,
    dependencies=[needs("run")],
    responses={202: {"content": {"application/json": {"schema": {"type": "null"}}}}},
)
async def signal(
    office: TheOffice, execution: ExecutionId, request: SignalRequest, idempotency_key: IdempotencyKey = None
) -> None:
    """Kept until the workflow takes it, in order per name. The same `id` (or key) again changes nothing; with another
    name or payload it is refused (409)."""
    named = one_key(idempotency_key, request.id, "id")
    await office.client.signal(execution, request.name, request.payload, named)


@router.post("/{execution}/cancel", operation_id="cancel_execution", dependencies=[needs("run")])
async def cancel(
    office: TheOffice, execution: ExecutionId, request: CancelRequest | None = None
) -> ExecutionInfo:
    """Graphs end at once; a script cleans up first, and is CANCELLED when that is done. A second cancel changes
    nothing; a paused execution is resumed, so that it can clean up."""
    await office.client.cancel(execution, request.reason if request is not None else None)
    return await _info(office, execution)


@router.post("/{execution}/terminate", operation_id="terminate_execution", dependencies=[needs("run")])
async def terminate(
    office: TheOffice, execution: ExecutionId, request: CancelRequest | None = None
) -> ExecutionInfo:
    """Ends it at once (CANCELLED, error code `TERMINATED`). A script does not clean up: a dead letter says so, from
    which a new execution can go on with the clean-up."""
    await office.client.terminate(execution, request.reason if request is not None else None)
    return await _info(office, execution)


@router.post("/{execution}/pause", operation_id="pause_execution", dependencies=[needs("run")])
async def pause(office: TheOffice, execution: ExecutionId) -> ExecutionInfo:
    """What runs commits; nothing else begins until it is resumed."""
    await office.client.pause(execution)
    return await _info(office, execution)


@router.post("/{execution}/resume", operation_id="resume_execution", dependencies=[needs("run")])
async def resume(office: TheOffice, execution: ExecutionId) -> ExecutionInfo:
    """A paused execution goes on; what came due meanwhile runs now."""
    await office.client.resume(execution)
    return await _info(office, execution)


@router.post(
    "/{execution}/retry",
    operation_id="retry_execution",
    status_code=status.HTTP_201_CREATED,
    dependencies=[needs("run")],
    responses=USED_BEFORE,
)
async def retry(
    office: TheOffice,
    execution: ExecutionId,
    response: Response,
    http: Request,
    idempotency_key: IdempotencyKey = None,
) -> Execution:
    """A new execution from everything that failed or was interrupted. The same key again is the same new execution
    (200 instead of 201)."""
    starter = await _starter(office, caller_of(http), execution, idempotency_key)
    again = await office.client.repetition.rerun(execution, None, None, idempotency_key, starter)
    return await answer_for(office, again, response)


@router.post(
    "/{execution}/rerun",
    operation_id="rerun_execution",
    status_code=status.HTTP_201_CREATED,
    dependencies=[needs("run")],
    responses=USED_BEFORE,
)
async def rerun(
    office: TheOffice,
    execution: ExecutionId,
    request: RerunRequest,
    response: Response,
    http: Request,
    idempotency_key: IdempotencyKey = None,
) -> Execution:
    """A new execution from these nodes on, with the recorded context, edited as asked. The same key again is the same
    new execution (200 instead of 201); with other nodes or another context it is refused (409)."""
    starter = await _starter(office, caller_of(http), execution, idempotency_key)
    again = await office.client.repetition.rerun(
        execution, request.nodes, request.context, idempotency_key, starter
    )
    return await answer_for(office, again, response)


async def _starter(office: Office, caller: Caller, execution: str, key: str | None) -> str | None:
    """Counts a retry or rerun as a start; the key that the new execution counts for."""
    office.usage.count_starts(caller)
    made = repeated_execution_id(execution, key) if key is not None else None
    return await starter_of(office, caller, made)


async def _info(office: Office, execution: str) -> ExecutionInfo:
    return ExecutionInfo.of(await office.client.outline(execution))
