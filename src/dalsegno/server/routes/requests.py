"""``/v1/executions/{id}/requests``: ask a running workflow, and read its answers."""

from __future__ import annotations

import asyncio
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request, Response, status

from dalsegno.engine.operations.requests import RequestView
from dalsegno.model.ids import new_execution_id
from dalsegno.server.auth.authentication import caller_of, needs
from dalsegno.server.http import deadlines
from dalsegno.server.http.request import IdempotencyKey, one_key
from dalsegno.server.http.routing import Route
from dalsegno.server.routes.executions import ExecutionId
from dalsegno.server.schemas.requests import AskRequest, OpenRequests, RequestInfo
from dalsegno.server.services import ServerServices, Services

requests_router = APIRouter(prefix="/executions", tags=["executions"], route_class=Route)

RequestName = Annotated[
    str,
    Path(max_length=490, description="The name under which the workflow receives it.", examples=["quote"]),
]
RequestId = Annotated[
    str, Path(max_length=500, description="The `id` of the request.", examples=["quote-17"])
]


@requests_router.post(
    "/{execution}/requests/{name:whole}",
    operation_id="ask_execution",
    dependencies=[needs("run")],
    responses={
        202: {"model": RequestInfo, "description": "It has no answer yet; `Location` is where it will be."}
    },
)
async def ask(
    services: Services,
    http: Request,
    response: Response,
    execution: ExecutionId,
    name: RequestName,
    request: AskRequest,
    wait: Annotated[float, Query(ge=0, le=60, description="Maximum seconds to wait for the answer.")] = 20,
    idempotency_key: IdempotencyKey = None,
) -> RequestInfo:
    """Sends a request to a running script or Python workflow, and returns it with its answer. If there is none in time,
    the status is 202: read it later, or send it again with the same `id` (or key) and payload. The same `id` with
    another name or payload is refused (409), and so is a request to an execution that has ended, or that ends without
    an answer. A request that the workflow refuses has the state `rejected` and its `message`."""
    asking = services.client.asking
    own = one_key(idempotency_key, request.id, "id") or new_execution_id(services.client.stack.ledger.now())
    if wait and not services.closing.is_set():
        deadlines.allow(wait)
        with services.usage.waiting(caller_of(http)):
            await asking.send(execution, name, request.payload, own)
            found = await _answered(services, execution, own, wait)
    else:
        await asking.send(execution, name, request.payload, own)
        found = await asking.get(execution, own)
    if found.is_open:
        response.status_code = status.HTTP_202_ACCEPTED
    elif found.state == "unanswered":
        found.answer()  # raises the conflict
    response.headers["Location"] = f"/v1/executions/{execution}/requests/{quote(own, safe='')}"
    return RequestInfo.of(found)


@requests_router.get(
    "/{execution}/requests", operation_id="list_execution_requests", dependencies=[needs("read")]
)
async def open_requests(services: Services, execution: ExecutionId) -> OpenRequests:
    """Lists the requests that wait for an answer, oldest first, at most 1,000."""
    return OpenRequests(
        items=[RequestInfo.of(each) for each in await services.client.open_requests(execution)]
    )


@requests_router.get(
    "/{execution}/requests/{id:whole}", operation_id="get_execution_request", dependencies=[needs("read")]
)
async def one(
    services: Services,
    http: Request,
    execution: ExecutionId,
    id: RequestId,
    seconds: Annotated[float, Query(ge=0, le=60, description="Maximum seconds to wait for the answer.")] = 0,
) -> RequestInfo:
    """Returns a request as soon as it has an answer or its execution has ended, or as it is when the time is over."""
    if not seconds:
        return RequestInfo.of(await services.client.request(execution, id))
    deadlines.allow(seconds)
    with services.usage.waiting(caller_of(http)):
        return RequestInfo.of(await _answered(services, execution, id, seconds))


async def _answered(services: ServerServices, execution: str, id: str, seconds: float) -> RequestView:
    """Wait for the answer. A server that stops answers early."""
    waiting = asyncio.ensure_future(services.client.asking.wait(execution, id, seconds))
    closing = asyncio.ensure_future(services.closing.wait())
    try:
        await asyncio.wait((waiting, closing), return_when="FIRST_COMPLETED")
        if waiting.done():
            return waiting.result()
    finally:
        waiting.cancel()
        closing.cancel()
    return await services.client.request(execution, id)
