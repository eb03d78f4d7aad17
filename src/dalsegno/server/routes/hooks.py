"""``/v1/hooks/…``: where deliveries of webhooks come in. There is no key: the signature is checked instead."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import JSONResponse, Response

from dalsegno.engine.webhooks import METHODS
from dalsegno.errors import BadRequest, NotFound, WorkflowFailed
from dalsegno.model.execution import ENDED, ExecutionView
from dalsegno.server import deadlines
from dalsegno.server.deliveries import Delivery, Taken, book_of, result_of, take
from dalsegno.server.office import TheOffice
from dalsegno.server.problems import problem, refusal
from dalsegno.server.replies import json_reply
from dalsegno.server.schemas.values import stored
from dalsegno.server.schemas.webhooks import HookReply
from dalsegno.server.sources import OTHER_MEDIA_TYPES
from dalsegno.server.visit import Visit

router = APIRouter(prefix="/hooks", tags=["webhooks"])

HookPath = Annotated[
    str, Path(max_length=1100, description="The path of the webhook.", examples=["github/push"])
]
BODIES: dict[str, Any] = {
    "requestBody": {
        "description": "Exactly the bytes that were signed: JSON, a form, or text (`text/…`).",
        "content": {
            "application/json": {
                "schema": {"description": "Any JSON value."},
                "example": {"ref": "refs/heads/main"},
            },
        },
        OTHER_MEDIA_TYPES: {
            "application/x-www-form-urlencoded": {"example": {"payload": '{"ref":"refs/heads/main"}'}},
            "text/plain": {"example": "refs/heads/main"},
        },
    }
}
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A delivery that came before; or, of a webhook that waits, the workflow's output.",
        "content": {"application/json": {"schema": {"description": "A `HookReply`, or any JSON value."}}},
    },
    202: {"model": HookReply, "description": "Started."},
    405: refusal(405, "This webhook takes other methods."),
}


async def receive(office: TheOffice, request: Request, path: HookPath) -> Response:
    """A delivery. It starts the webhook's workflow with `{body, query, headers, method, path}`; the same delivery again
    starts nothing and is told the execution of the first one."""
    webhook = await book_of(office).at(path)
    if webhook is None:
        raise NotFound(f"there is no webhook at {request.url.path[:200]}")
    if request.method not in webhook.methods:
        allowed = {"Allow": ", ".join(webhook.methods)}
        return problem(405, BadRequest.code, f"this webhook does not take {request.method}", headers=allowed)
    taken = await take(office, webhook, await _delivery(request, path))
    if webhook.sync_seconds is None:
        return _started(taken, await office.client.outline(taken.execution))
    deadlines.allow(webhook.sync_seconds)
    view = await result_of(office, taken.execution, webhook.sync_seconds)
    return _result(view) if view.state in ENDED else _started(taken, view)


async def _delivery(request: Request, path: str) -> Delivery:
    visit = Visit(request.scope)
    query = request.scope.get("query_string", b"").decode("latin-1")
    return Delivery(request.method, path, query, visit.headers, await request.body(), visit.address or "")


def _started(taken: Taken, view: ExecutionView) -> Response:
    reply = HookReply(
        id=taken.execution, execution=taken.execution, state=view.state, repeated=taken.is_repeat
    )
    status = 200 if taken.is_repeat else 202
    return JSONResponse(reply.model_dump(), status, {"Location": f"/v1/executions/{taken.execution}"})


def _result(view: ExecutionView) -> Response:
    """Of a failure only that it happened: its words are for those who may look at the execution."""
    if view.state == "COMPLETED":
        return json_reply(stored(view.output), 200, {"Location": f"/v1/executions/{view.id}"})
    return problem(
        409, WorkflowFailed.code, f"the workflow did not succeed: execution {view.id} is {view.state}"
    )


for method in METHODS:
    router.add_api_route(
        "/{path:whole}",
        receive,
        methods=[method],
        operation_id=f"deliver_webhook_by_{method.lower()}",
        response_class=JSONResponse,
        status_code=202,
        responses=ANSWERS,
        openapi_extra=BODIES,
    )
