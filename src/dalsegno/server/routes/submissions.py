"""``/v1/workflows``: a start in two steps, submit and trigger; and ``trigger`` for whatever waits to begin."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response, status

from dalsegno.core.context import key_of
from dalsegno.engine.pending import UNCHANGED
from dalsegno.engine.repeats import check_same_input
from dalsegno.engine.starting import StartOptions
from dalsegno.model.definition import format_target
from dalsegno.server.access import needs
from dalsegno.server.deploying import deploy_inline
from dalsegno.server.office import TheOffice
from dalsegno.server.repeating import IdempotencyKey
from dalsegno.server.routes.executions import ExecutionId
from dalsegno.server.schemas.executions import ExecutionInfo, NodeInfo
from dalsegno.server.schemas.submissions import (
    Submission,
    SubmissionResults,
    SubmissionStatus,
    SubmitRequest,
    TriggerRequest,
)

router = APIRouter(tags=["submissions"])


@router.post(
    "/workflows",
    status_code=status.HTTP_201_CREATED,
    dependencies=[needs("run")],
    responses={200: {"model": Submission, "description": "The key was used before: that execution"}},
)
async def submit(
    office: TheOffice, request: SubmitRequest, response: Response, idempotency_key: IdempotencyKey = None
) -> Submission:
    """Stores the definition and creates an execution of it that is PENDING: nothing runs until it is triggered. The
    input is checked now. With a key that was used before for this workflow, that execution is returned (200);
    with such a key and another input nothing is done (409)."""
    key = request.idempotency_key or idempotency_key
    client = office.client
    definition = await deploy_inline(office, request.document())
    began = client.stack.clock.now()
    target = format_target(definition.name, definition.version)
    execution = await client.submit(target, request.input, StartOptions(idempotency_key=key))
    view = await client.status(execution)
    if key is not None:
        await check_same_input(client, view, request.input)
    if key is not None and view.created_at < began:
        response.status_code = status.HTTP_200_OK
    response.headers["Location"] = f"/v1/workflows/{execution}/status"
    return Submission.of(view)


@router.post("/workflows/{execution}/trigger", dependencies=[needs("run")])
async def trigger_workflow(
    office: TheOffice, execution: ExecutionId, request: TriggerRequest | None = None
) -> Submission:
    """Begins it, with the submitted input or with another one. Once: one that has begun is returned as it is, unless
    another input is asked for (409)."""
    await office.client.trigger(execution, _given(request))
    return Submission.of(await office.client.status(execution))


@router.get("/workflows/{execution}/status", dependencies=[needs("read")])
async def workflow_status(office: TheOffice, execution: ExecutionId) -> SubmissionStatus:
    """Its state, and that of every node."""
    view = await office.client.status(execution)
    found = await office.client.nodes(execution)
    return SubmissionStatus.with_nodes(view, {name: NodeInfo.of(each) for name, each in found.items()})


@router.get("/workflows/{execution}/results", dependencies=[needs("read")])
async def workflow_results(office: TheOffice, execution: ExecutionId) -> SubmissionResults:
    """Every node's output, and the execution's own."""
    view = await office.client.status(execution)
    context = await office.client.context(execution)
    nodes = await office.client.nodes(execution)
    results = {name: context[key_of(name)] for name in nodes if key_of(name) in context}
    return SubmissionResults.with_results(view, results)


@router.post("/executions/{execution}/trigger", dependencies=[needs("run")])
async def trigger(
    office: TheOffice, execution: ExecutionId, request: TriggerRequest | None = None
) -> ExecutionInfo:
    """Begins a PENDING execution before its time, with its own input or with another one. One that has begun is
    returned as it is, unless another input is asked for (409)."""
    await office.client.trigger(execution, _given(request))
    return ExecutionInfo.of(await office.client.status(execution))


def _given(request: TriggerRequest | None) -> Any:
    return request.input if request is not None and "input" in request.model_fields_set else UNCHANGED
