"""``/v1/webhooks`` manages webhooks; ``/v1/hooks/…`` receives their deliveries.

A delivery needs no key: its signature is checked instead.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response, status
from fastapi.responses import JSONResponse

from dalsegno.admin.webhooks import METHODS, Webhook, missing_workflow
from dalsegno.errors import BadRequest, NotFound, WorkflowFailed
from dalsegno.model.execution import ENDED, ExecutionView
from dalsegno.server.auth.authentication import needs
from dalsegno.server.executions.filters import Cursor, Limit, Page, from_cursor, to_cursor
from dalsegno.server.executions.sources import OTHER_MEDIA_TYPES
from dalsegno.server.http import deadlines
from dalsegno.server.http.problems import problem, refusal
from dalsegno.server.http.request import GuardedRequest
from dalsegno.server.http.responses import json_reply
from dalsegno.server.http.routing import Route
from dalsegno.server.schemas.values import stored
from dalsegno.server.schemas.webhooks import HookReply, WebhookInfo, WebhookSetting
from dalsegno.server.services import ServerServices, Services
from dalsegno.server.webhooks import Delivery, Taken, result_of, take, webhooks_of

hooks_router = APIRouter(prefix="/hooks", tags=["webhooks"])

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
        "description": "A repeated delivery; or, with `sync_seconds`, the workflow's output.",
        "content": {"application/json": {"schema": {"description": "A `HookReply`, or any JSON value."}}},
    },
    202: {"model": HookReply, "description": "Started."},
    405: refusal(405, "This webhook accepts other methods."),
}


async def receive(services: Services, request: Request, path: HookPath) -> Response:
    """Receives a delivery. It starts the webhook's workflow with `{body, query, headers, method, path}`; a repeated
    delivery starts nothing and gets the execution of the first one."""
    webhook = await webhooks_of(services).at(path)
    if webhook is None:
        raise NotFound(f"there is no webhook at {request.url.path[:200]}")
    if request.method not in webhook.methods:
        allowed = {"Allow": ", ".join(webhook.methods)}
        return problem(
            405, BadRequest.code, f"this webhook does not accept {request.method}", headers=allowed
        )
    taken = await take(services, webhook, await _delivery(request, path))
    if webhook.sync_seconds is None:
        return _started(taken, await services.client.outline(taken.execution))
    deadlines.allow(webhook.sync_seconds)
    view = await result_of(services, taken.execution, webhook.sync_seconds)
    return _result(view) if view.state in ENDED else _started(taken, view)


async def _delivery(request: Request, path: str) -> Delivery:
    visit = GuardedRequest(request.scope)
    query = request.scope.get("query_string", b"").decode("latin-1")
    return Delivery(request.method, path, query, visit.headers, await request.body(), visit.address or "")


def _started(taken: Taken, view: ExecutionView) -> Response:
    reply = HookReply(
        id=taken.execution, execution=taken.execution, state=view.state, repeated=taken.is_repeat
    )
    status = 200 if taken.is_repeat else 202
    return JSONResponse(reply.model_dump(), status, {"Location": f"/v1/executions/{taken.execution}"})


def _result(view: ExecutionView) -> Response:
    """Return the reply to a sender that waits for the result. Of a failure it states only that it happened: the
    error is for those who may read the execution."""
    if view.state == "COMPLETED":
        return json_reply(stored(view.output), 200, {"Location": f"/v1/executions/{view.id}"})
    return problem(
        409, WorkflowFailed.code, f"the workflow did not succeed: execution {view.id} is {view.state}"
    )


for method in METHODS:
    hooks_router.add_api_route(
        "/{path:whole}",
        receive,
        methods=[method],
        operation_id=f"deliver_webhook_by_{method.lower()}",
        response_class=JSONResponse,
        status_code=202,
        responses=ANSWERS,
        openapi_extra=BODIES,
    )


webhooks_router = APIRouter(prefix="/webhooks", tags=["webhooks"], route_class=Route)

Id = Annotated[str, Path(max_length=100, description="The webhook's id.", examples=["github-push"])]


@webhooks_router.get("", operation_id="list_webhooks", dependencies=[needs("read")])
async def webhooks(services: Services, limit: Limit = 100, cursor: Cursor = None) -> Page[WebhookInfo]:
    """Lists all webhooks by id, without their secrets."""
    found = await webhooks_of(services).page(from_cursor(cursor) or "", limit + 1)
    items = [await _shown(services, each) for each in found[:limit]]
    return Page(items=items, next=to_cursor(items[-1].id) if len(found) > limit else None)


@webhooks_router.get("/{id}", operation_id="get_webhook", dependencies=[needs("read")])
async def webhook(services: Services, id: Id) -> WebhookInfo:
    """Returns one webhook, without its secret: no call returns that."""
    return await _shown(services, await webhooks_of(services).get(id))


@webhooks_router.put(
    "/{id}",
    operation_id="put_webhook",
    dependencies=[needs("admin")],
    responses={201: {"model": WebhookInfo}},
)
async def put(services: Services, id: Id, setting: WebhookSetting, response: Response) -> WebhookInfo:
    """Creates a webhook (201) or changes it (200). It accepts deliveries at once; if it cannot, a `warning` says
    why."""
    now = services.client.stack.clock.now()
    made, is_new = await webhooks_of(services).put(setting.named(id, now), setting.secret)
    if is_new:
        response.status_code = status.HTTP_201_CREATED
    return await _shown(services, made)


@webhooks_router.delete(
    "/{id}",
    operation_id="delete_webhook",
    status_code=status.HTTP_204_NO_CONTENT,
    dependencies=[needs("admin")],
)
async def remove(services: Services, id: Id) -> None:
    """Removes a webhook and its secret. Deliveries get 404 from now on."""
    await webhooks_of(services).remove(id)


async def _shown(services: ServerServices, webhook: Webhook) -> WebhookInfo:
    problem = await webhooks_of(services).problem(webhook)
    return WebhookInfo.of(webhook, problem or await missing_workflow(services.client.stack.archive, webhook))
