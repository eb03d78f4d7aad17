"""``/v1/workflows``: a start in two steps, submit and trigger; and ``trigger`` for any pending execution."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response, status

from dalsegno.core.graph.step_input import key_of
from dalsegno.engine.starting.pending import UNCHANGED
from dalsegno.engine.starting.start import StartOptions
from dalsegno.server.auth.authentication import caller_of, needs
from dalsegno.server.executions.starts import start_inline
from dalsegno.server.http.request import IdempotencyKey, one_key
from dalsegno.server.http.responses import outline, with_results
from dalsegno.server.http.routing import Route
from dalsegno.server.routes.executions import ExecutionId
from dalsegno.server.schemas.executions import (
    ExecutionInfo,
    NodeInfo,
    Submission,
    SubmissionResults,
    SubmissionStatus,
    SubmitRequest,
    TriggerRequest,
)
from dalsegno.server.services import Services

router = APIRouter(tags=["submissions"], route_class=Route)


@router.post(
    "/workflows",
    operation_id="submit_workflow",
    status_code=status.HTTP_201_CREATED,
    dependencies=[needs("run")],
    responses={200: {"model": Submission, "description": "The key was used before: that execution"}},
)
async def submit(
    services: Services,
    request: SubmitRequest,
    response: Response,
    http: Request,
    idempotency_key: IdempotencyKey = None,
) -> Submission:
    """Stores the definition and creates a PENDING execution of it: nothing runs until it is triggered. The input is
    checked now. A repeated idempotency key of this workflow returns the existing execution (200); the same key
    with another input or definition is refused (409)."""
    client, caller = services.client, caller_of(http)
    services.usage.count_starts(caller)
    options = StartOptions(idempotency_key=one_key(idempotency_key, request.idempotency_key))
    started = await start_inline(
        services, caller, request.document, request.input, options, client.pending.planned
    )
    if not started.is_new:
        response.status_code = status.HTTP_200_OK
    response.headers["Location"] = f"/v1/workflows/{started.execution}/status"
    return Submission.of(await client.outline(started.execution))


@router.post("/workflows/{execution}/trigger", operation_id="trigger_submission", dependencies=[needs("run")])
async def trigger_workflow(
    services: Services, execution: ExecutionId, request: TriggerRequest | None = None
) -> Submission:
    """Starts the execution, with the submitted input or with another one. A second trigger returns the execution
    unchanged, unless it asks for another input (409)."""
    await services.client.trigger(execution, _given(request))
    return Submission.of(await services.client.outline(execution))


@router.get(
    "/workflows/{execution}/status", operation_id="get_submission_status", dependencies=[needs("read")]
)
async def workflow_status(services: Services, execution: ExecutionId) -> SubmissionStatus:
    """Returns the state of the execution and of every node."""
    view = await outline(services, execution)
    found = await services.client.nodes(execution)
    return SubmissionStatus.with_nodes(view, {name: NodeInfo.of(each) for name, each in found.items()})


@router.get(
    "/workflows/{execution}/results", operation_id="get_submission_results", dependencies=[needs("read")]
)
async def workflow_results(services: Services, execution: ExecutionId) -> SubmissionResults:
    """Returns every node's output, and the execution's own."""
    await with_results(services, execution)
    view = await services.client.status(execution)
    context = await services.client.stored_context(execution)
    nodes = await services.client.nodes(execution)
    results = {name: context[key_of(name)] for name in nodes if key_of(name) in context}
    return SubmissionResults.with_results(view, results)


@router.post("/executions/{execution}/trigger", operation_id="trigger_execution", dependencies=[needs("run")])
async def trigger(
    services: Services, execution: ExecutionId, request: TriggerRequest | None = None
) -> ExecutionInfo:
    """Starts a PENDING execution before its time, with its own input or with another one. An execution that has
    started is returned unchanged, unless another input is given (409)."""
    await services.client.trigger(execution, _given(request))
    return ExecutionInfo.of(await services.client.outline(execution))


def _given(request: TriggerRequest | None) -> Any:
    return request.input if request is not None and "input" in request.model_fields_set else UNCHANGED
