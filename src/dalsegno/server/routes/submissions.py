"""``/v1/workflows``: a start in two steps, submit and trigger; and ``trigger`` for whatever waits to begin."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response, status

from dalsegno.core.context import key_of
from dalsegno.engine.pending import UNCHANGED
from dalsegno.engine.starting import StartOptions
from dalsegno.server.access import caller_of, needs
from dalsegno.server.inline import start_inline
from dalsegno.server.large_values import outline, with_results
from dalsegno.server.office import TheOffice
from dalsegno.server.repeating import IdempotencyKey, one_key
from dalsegno.server.route import Route
from dalsegno.server.routes.executions import ExecutionId
from dalsegno.server.schemas.executions import ExecutionInfo, NodeInfo
from dalsegno.server.schemas.submissions import (
    Submission,
    SubmissionResults,
    SubmissionStatus,
    SubmitRequest,
    TriggerRequest,
)

router = APIRouter(tags=["submissions"], route_class=Route)


@router.post(
    "/workflows",
    operation_id="submit_workflow",
    status_code=status.HTTP_201_CREATED,
    dependencies=[needs("run")],
    responses={200: {"model": Submission, "description": "The key was used before: that execution"}},
)
async def submit(
    office: TheOffice,
    request: SubmitRequest,
    response: Response,
    http: Request,
    idempotency_key: IdempotencyKey = None,
) -> Submission:
    """Stores the definition and creates an execution of it that is PENDING: nothing runs until it is triggered. The
    input is checked now. With a key that was used before for this workflow, that execution is returned (200);
    with such a key and another input or definition nothing is done (409)."""
    client, caller = office.client, caller_of(http)
    office.usage.count_starts(caller)
    options = StartOptions(idempotency_key=one_key(idempotency_key, request.idempotency_key))
    started = await start_inline(
        office, caller, request.document, request.input, options, client.pending.planned
    )
    if not started.is_new:
        response.status_code = status.HTTP_200_OK
    response.headers["Location"] = f"/v1/workflows/{started.execution}/status"
    return Submission.of(await client.outline(started.execution))


@router.post("/workflows/{execution}/trigger", operation_id="trigger_submission", dependencies=[needs("run")])
async def trigger_workflow(
    office: TheOffice, execution: ExecutionId, request: TriggerRequest | None = None
) -> Submission:
    """Begins it, with the submitted input or with another one. Once: one that has begun is returned as it is, unless
    another input is asked for (409)."""
    await office.client.trigger(execution, _given(request))
    return Submission.of(await office.client.outline(execution))


@router.get(
    "/workflows/{execution}/status", operation_id="get_submission_status", dependencies=[needs("read")]
)
async def workflow_status(office: TheOffice, execution: ExecutionId) -> SubmissionStatus:
    """Its state, and that of every node."""
    view = await outline(office, execution)
    found = await office.client.nodes(execution)
    return SubmissionStatus.with_nodes(view, {name: NodeInfo.of(each) for name, each in found.items()})


@router.get(
    "/workflows/{execution}/results", operation_id="get_submission_results", dependencies=[needs("read")]
)
async def workflow_results(office: TheOffice, execution: ExecutionId) -> SubmissionResults:
    """Every node's output, and the execution's own."""
    await with_results(office, execution)
    view = await office.client.status(execution)
    context = await office.client.stored_context(execution)
    nodes = await office.client.nodes(execution)
    results = {name: context[key_of(name)] for name in nodes if key_of(name) in context}
    return SubmissionResults.with_results(view, results)


@router.post("/executions/{execution}/trigger", operation_id="trigger_execution", dependencies=[needs("run")])
async def trigger(
    office: TheOffice, execution: ExecutionId, request: TriggerRequest | None = None
) -> ExecutionInfo:
    """Begins a PENDING execution before its time, with its own input or with another one. One that has begun is
    returned as it is, unless another input is asked for (409)."""
    await office.client.trigger(execution, _given(request))
    return ExecutionInfo.of(await office.client.outline(execution))


def _given(request: TriggerRequest | None) -> Any:
    return request.input if request is not None and "input" in request.model_fields_set else UNCHANGED
