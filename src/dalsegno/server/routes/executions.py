"""``/v1/executions``: start, read, wait for, control and remove executions.

``/v1/executions/bulk`` applies one action to all executions that match a filter. ``/v1/executions/{id}/wait`` and
``/v1/executions/endings`` answer when one execution, or any of many, ends.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response, status

from dalsegno.errors import Forbidden, InvalidInput
from dalsegno.model.ids import LONGEST_ID, repeated_execution_id
from dalsegno.server.auth.authentication import Caller, caller_of, needs
from dalsegno.server.executions.bulk import remove_one, run_bulk
from dalsegno.server.executions.filters import AskedFilter, Cursor, Limit, Page, cursor_after, place_at
from dalsegno.server.executions.starts import (
    USED_BEFORE,
    TraceParent,
    answer_for,
    options_of,
    plan_of,
    run_batch,
    start_inline,
    start_named,
)
from dalsegno.server.http import deadlines
from dalsegno.server.http.request import IdempotencyKey, one_key
from dalsegno.server.http.responses import is_large, outline, streamed_object, whole, with_results
from dalsegno.server.http.routing import Route
from dalsegno.server.schemas.executions import (
    AGAIN_VERSION,
    EXAMPLE_ID,
    FROM_START,
    BatchReply,
    BatchRequest,
    BulkReply,
    BulkRequest,
    CancelRequest,
    EndingsRequest,
    EventInfo,
    EventPage,
    Execution,
    ExecutionInfo,
    NodeInfo,
    PictureInfo,
    RerunRequest,
    RetryPreview,
    RetryRequest,
    SignalRequest,
    StartRequest,
    Why,
)
from dalsegno.server.schemas.moves import MovedInfo, MoveRequest
from dalsegno.server.services import ServerServices, Services
from dalsegno.server.streams.stream import EventStream, check_seen, endings_stream

executions_router = APIRouter(prefix="/executions", tags=["executions"], route_class=Route)

ExecutionId = Annotated[
    str, Path(max_length=LONGEST_ID, description="The `id` of the execution.", examples=[EXAMPLE_ID])
]


@executions_router.post(
    "",
    operation_id="start_execution",
    status_code=status.HTTP_201_CREATED,
    dependencies=[needs("run")],
    responses=USED_BEFORE,
)
async def start(
    services: Services,
    request: StartRequest,
    response: Response,
    http: Request,
    idempotency_key: IdempotencyKey = None,
    traceparent: TraceParent = None,
) -> Execution:
    """Starts a workflow. A repeated idempotency key returns the existing execution (200 instead of 201); the same
    key with another input, definition, version or delay is refused (409)."""
    caller = caller_of(http)
    options = options_of(request, one_key(idempotency_key, request.idempotency_key), traceparent)
    if request.definition is None:
        return await answer_for(services, await start_named(services, caller, request, options), response)
    if request.workflow is not None:
        raise InvalidInput("/body: give either 'workflow' or 'definition'")
    if request.version is not None:
        raise InvalidInput("/body/version: 'definition' is one version already; omit 'version'")
    services.usage.count_starts(caller)
    plan = plan_of(services, request)
    started = await start_inline(services, caller, request.definition, request.input, options, plan)
    return await answer_for(services, started, response)


@executions_router.post("/batch", operation_id="start_executions", dependencies=[needs("run")])
async def start_batch(
    services: Services, request: BatchRequest, http: Request, traceparent: TraceParent = None
) -> BatchReply:
    """Starts up to 1,000 workflows in one call. Each start succeeds or fails separately, and `results` has their
    outcomes in the same order. A malformed body is refused as a whole (422), and nothing is started. Every start
    counts for the key's quotas. Give each start an `idempotency_key`: then a batch that got no reply can be sent
    again unchanged, and nothing is started twice."""
    return BatchReply(results=await run_batch(services, caller_of(http), request.starts, traceparent))


@executions_router.get("", operation_id="list_executions", dependencies=[needs("read")])
async def executions(
    services: Services, where: AskedFilter, limit: Limit = 50, cursor: Cursor = None
) -> Page[ExecutionInfo]:
    """Lists executions, newest first. All given filters must match; of several states, kinds or relations one must
    match."""
    found = await services.client.executions(where, place_at(cursor), limit + 1)
    items = [ExecutionInfo.of(view) for view in found[:limit]]
    return Page(items=items, next=cursor_after(found[limit - 1]) if len(found) > limit else None)


@executions_router.get("/{execution}", operation_id="get_execution", dependencies=[needs("read")])
async def one(services: Services, execution: ExecutionId) -> Execution:
    """Returns one execution with its input and output."""
    return Execution.of(await whole(services, execution))


@executions_router.get("/{execution}/nodes", operation_id="get_execution_nodes", dependencies=[needs("read")])
async def nodes(services: Services, execution: ExecutionId) -> dict[str, NodeInfo]:
    """Returns state and runs of every node; for a script, of every task by its name."""
    await outline(services, execution)
    found = await services.client.nodes(execution)
    return {name: NodeInfo.of(summary) for name, summary in found.items()}


@executions_router.get(
    "/{execution}/results",
    operation_id="get_execution_results",
    dependencies=[needs("read")],
    response_model=dict[str, Any],
)
async def results(services: Services, execution: ExecutionId) -> Any:
    """Returns every node's output by `$node`; before the end, the outputs of finished branches."""
    view = await with_results(services, execution)
    if not is_large(view):
        return dict(await services.client.stored_context(execution))
    return streamed_object(await services.client.context_readers(execution), deadlines.closing_connection())


@executions_router.get(
    "/{execution}/events", operation_id="list_execution_events", dependencies=[needs("read")]
)
async def events(
    services: Services,
    execution: ExecutionId,
    after: Annotated[int, Query(ge=0, le=2**53, description="Number of the last event seen.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries.")] = 200,
) -> EventPage:
    """Returns the history from any event number on, in order. Use `last` as the next `after`. A number higher than
    that of the last event is refused."""
    check_seen(await outline(services, execution), after)
    found = [EventInfo.of(event) for event in await services.client.events(execution, after, limit)]
    return EventPage(events=found, last=found[-1].seq if found else after)


@executions_router.get("/{execution}/why", operation_id="explain_execution", dependencies=[needs("read")])
async def why(services: Services, execution: ExecutionId) -> Why:
    """Returns what exactly the execution waits for (which timer, signal, barrier, queue, limit or retry), and what
    can be done about it. `dalsegno why` and `handle.why()` return the same answer."""
    return Why.of(await services.client.explain(execution))


@executions_router.get(
    "/{execution}/picture", operation_id="get_execution_picture", dependencies=[needs("read")]
)
async def picture(services: Services, execution: ExecutionId) -> PictureInfo | None:
    """Returns the state of a running script or Python workflow: its line, what it awaits, its variables."""
    await with_results(services, execution)
    seen = await services.client.picture(execution)
    if seen is None:
        return None
    return PictureInfo(line=seen.line, text=seen.source, awaits=seen.awaiting, variables=seen.variables)


# -- commands -------------------------------------------------------------------------------------------------


@executions_router.post(
    "/{execution}/signals",
    operation_id="signal_execution",
    status_code=status.HTTP_202_ACCEPTED,
    dependencies=[needs("run")],
    responses={202: {"content": {"application/json": {"schema": {"type": "null"}}}}},
)
async def signal(
    services: Services, execution: ExecutionId, request: SignalRequest, idempotency_key: IdempotencyKey = None
) -> None:
    """Sends a signal. Signals are kept until the workflow receives them, in order per name. Repeating the same `id`
    (or key) changes nothing; with another name or payload it is refused (409)."""
    named = one_key(idempotency_key, request.id, "id")
    await services.client.signal(execution, request.name, request.payload, named)


@executions_router.post("/{execution}/cancel", operation_id="cancel_execution", dependencies=[needs("run")])
async def cancel(
    services: Services, execution: ExecutionId, request: CancelRequest | None = None
) -> ExecutionInfo:
    """Cancels an execution. A graph ends at once; a script runs its clean-up first and is CANCELLED afterwards. A
    second cancel changes nothing; a paused execution is resumed for its clean-up."""
    await services.client.cancel(execution, request.reason if request is not None else None)
    return await _info(services, execution)


@executions_router.post(
    "/{execution}/terminate", operation_id="terminate_execution", dependencies=[needs("run")]
)
async def terminate(
    services: Services, execution: ExecutionId, request: CancelRequest | None = None
) -> ExecutionInfo:
    """Ends an execution at once (CANCELLED, error code `TERMINATED`). A script does not run its clean-up: a dead
    letter records this, and a new execution can run the clean-up from there."""
    await services.client.terminate(execution, request.reason if request is not None else None)
    return await _info(services, execution)


@executions_router.post("/{execution}/pause", operation_id="pause_execution", dependencies=[needs("run")])
async def pause(services: Services, execution: ExecutionId) -> ExecutionInfo:
    """Pauses an execution. Running steps commit; no further step starts until it is resumed."""
    await services.client.pause(execution)
    return await _info(services, execution)


@executions_router.post("/{execution}/resume", operation_id="resume_execution", dependencies=[needs("run")])
async def resume(services: Services, execution: ExecutionId) -> ExecutionInfo:
    """Resumes a paused execution; what came due meanwhile runs now."""
    await services.client.resume(execution)
    return await _info(services, execution)


@executions_router.post(
    "/{execution}/retry",
    operation_id="retry_execution",
    status_code=status.HTTP_201_CREATED,
    dependencies=[needs("run")],
    responses=USED_BEFORE,
)
async def retry(
    services: Services,
    execution: ExecutionId,
    response: Response,
    http: Request,
    request: RetryRequest | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Execution:
    """Starts a new execution from everything that failed or was interrupted. A script or Python workflow that failed
    goes on from its failure: what has completed does not run again. It starts over, without asking, with new
    idempotency keys, if it failed before it had to wait, if it did not fail, or with `from_start`. With `version` it
    goes on in another version of its workflow, or is refused with the reasons (409). A repeated idempotency key
    returns the same new execution (200 instead of 201); with another version it is refused (409)."""
    starter = await _starter(services, caller_of(http), execution, idempotency_key)
    asked = request or RetryRequest()
    again = await services.client.repetition.rerun(
        execution,
        None,
        None,
        idempotency_key,
        starter,
        from_start=asked.from_start,
        version=asked.version,
    )
    return await answer_for(services, again, response)


@executions_router.get("/{execution}/retry", operation_id="preview_retry", dependencies=[needs("run")])
async def preview_retry(
    services: Services,
    execution: ExecutionId,
    version: Annotated[str | None, Query(max_length=100, description=AGAIN_VERSION)] = None,
    from_start: Annotated[bool, Query(description=FROM_START)] = False,
) -> RetryPreview:
    """Returns what a retry would do, and starts nothing: the tasks or nodes that run again and, for another version
    of a script or Python workflow, the lines at which its functions wait in both. Refused like the retry (409)."""
    plan = await services.client.preview_retry(execution, None, version, from_start=from_start)
    return RetryPreview.of(plan)


@executions_router.post("/{execution}/move", operation_id="move_execution", dependencies=[needs("run")])
async def move(services: Services, execution: ExecutionId, request: MoveRequest) -> MovedInfo:
    """Lets an execution that has not ended go on with another version of its workflow: the same execution, under the
    same id. Scripts and Python workflows can be moved; a graph is refused (409). Refused with the reasons (409) if its
    state has no place in that version. Python workflows are moved by a server that has their module."""
    done = await services.client.move(execution, request.version, dry_run=request.dry_run)
    return MovedInfo.of(done)


@executions_router.post(
    "/{execution}/rerun",
    operation_id="rerun_execution",
    status_code=status.HTTP_201_CREATED,
    dependencies=[needs("run")],
    responses=USED_BEFORE,
)
async def rerun(
    services: Services,
    execution: ExecutionId,
    request: RerunRequest,
    response: Response,
    http: Request,
    idempotency_key: IdempotencyKey = None,
) -> Execution:
    """Starts a new execution from these nodes on, with the recorded context, edited as requested; or with the machine
    of a script or Python workflow as it was after a turn (`at`). A repeated idempotency key returns the same new
    execution (200 instead of 201); with another request it is refused (409)."""
    turn = request.turn
    starter = await _starter(services, caller_of(http), execution, idempotency_key)
    again = await services.client.repetition.rerun(
        execution,
        request.nodes,
        request.context,
        idempotency_key,
        starter,
        version=request.version,
        turn=turn,
    )
    return await answer_for(services, again, response)


@executions_router.post(
    "/{execution}/rerun/preview", operation_id="preview_rerun", dependencies=[needs("run")]
)
async def preview_rerun(services: Services, execution: ExecutionId, request: RerunRequest) -> RetryPreview:
    """Returns what a rerun would do, and starts nothing: the calls that are made again, those whose results are taken
    over, and those of later turns. Refused like the rerun (404, 409)."""
    turn = request.turn
    plan = await services.client.preview_retry(execution, request.nodes, request.version, turn=turn)
    return RetryPreview.of(plan)


async def _starter(services: ServerServices, caller: Caller, execution: str, key: str | None) -> str | None:
    """Count a retry or rerun as a start. Return the key that the new execution is counted for."""
    services.usage.count_starts(caller)
    made = repeated_execution_id(execution, key) if key is not None else None
    return await services.usage.starter_unless(services.client.stack.archive, caller, made)


async def _info(services: ServerServices, execution: str) -> ExecutionInfo:
    return ExecutionInfo.of(await services.client.outline(execution))


bulk_router = APIRouter(prefix="/executions", tags=["executions"], route_class=Route)


@bulk_router.post("/bulk", operation_id="change_executions", dependencies=[needs("run")])
async def bulk(services: Services, request: Request, order: BulkRequest) -> BulkReply:
    """Cancels, terminates, pauses, resumes, retries or deletes all executions that match a filter, newest first.

    Only executions in a state that allows the action are affected: `cancel` and `terminate` those that have not
    ended, `pause` running ones, `resume` paused ones, `retry` failed ones that were not retried yet (cancelled
    ones, if the filter says so), `delete` ended ones (needs the scope `admin`). A call processes `limit` of them;
    pass `next` as `cursor` to continue. The call is idempotent, so an interrupted call can be repeated unchanged;
    for `retry` pass `created_until`, or retries that fail again are retried in turn.
    """
    caller = caller_of(request)
    if order.action == "delete" and "admin" not in caller.scopes:
        raise Forbidden(f"deleting needs a key with the scope 'admin'; '{caller.name}' has none")
    return await run_bulk(services, caller, order)


@bulk_router.delete(
    "/{execution}", operation_id="delete_execution", status_code=204, dependencies=[needs("admin")]
)
async def remove(services: Services, execution: ExecutionId) -> None:
    """Removes an ended execution with its history and outputs permanently."""
    await remove_one(services, execution)


waiting_router = APIRouter(prefix="/executions", tags=["executions"], route_class=Route)

ENDINGS_EXAMPLE = (
    'event: checked\ndata: {"open":1}\n\n'
    'event: ended\ndata: {"id":"0198f3c2a1b4d6e8f0a2b4c6d8e0f2a4","workflow":"checkout","version":1,"kind":"graph",'
    '"state":"COMPLETED","created_at":"2026-01-05T09:00:00Z","output":42}\n\n'
    'event: end\ndata: {"open":0}\n\n'
)


@waiting_router.get("/{execution}/wait", operation_id="wait_for_execution", dependencies=[needs("read")])
async def wait(
    services: Services,
    request: Request,
    execution: ExecutionId,
    seconds: Annotated[float, Query(ge=0, le=60, description="Maximum seconds to wait.")] = 20,
) -> Execution:
    """Returns the execution as soon as it has ended, or in its current state when the time is over. A server that
    stops answers early: check `state`, and call again."""
    await services.client.outline(execution)  # an unknown execution is reported at once
    deadlines.allow(seconds)
    with services.usage.waiting(caller_of(request)):
        await _ended_or_closing(services, execution, seconds)
    return Execution.of(await whole(services, execution))


@waiting_router.post(
    "/endings",
    operation_id="stream_endings",
    dependencies=[needs("read")],
    status_code=200,
    response_class=EventStream,
    responses={
        200: {
            "description": "Server-sent events, until the stream ends.",
            "content": {"text/event-stream": {"schema": {"type": "string"}, "example": ENDINGS_EXAMPLE}},
        }
    },
)
async def endings(services: Services, request: Request, asked: EndingsRequest) -> EventStream:
    """Waits for up to 10,000 executions over one connection.

    Each execution that ends, or has ended, is sent as `event: ended` with the execution in `data`, as from `wait`.
    An unknown execution is sent as `event: refused` with its `id` and the `problem`. `event: checked` follows once
    all were checked. `event: end` is sent when none is left or `seconds` are over; a stream that closes without it
    was interrupted: call again for the executions that have not ended. The call counts as one open stream of its
    key. A comment is sent after every 15 seconds of silence.
    """
    over = services.usage.open_stream(caller_of(request))
    return EventStream(endings_stream(services, asked.executions, asked.seconds), over)


async def _ended_or_closing(services: ServerServices, execution: str, seconds: float) -> None:
    ending = asyncio.ensure_future(services.client.endings.over(execution))
    closing = asyncio.ensure_future(services.closing.wait())
    try:
        await asyncio.wait((ending, closing), timeout=seconds, return_when="FIRST_COMPLETED")
        if ending.done():
            ending.result()
    finally:
        ending.cancel()
        closing.cancel()
