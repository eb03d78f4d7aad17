"""What the ``http`` node does when it runs. Apart from its description, so that only who uses HTTP loads a client."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from dalsegno.nodes.http_client import HttpClients
from dalsegno.nodes.http_errors import over_limit, timed_out
from dalsegno.nodes.http_exchange import Exchange
from dalsegno.nodes.http_pagination import fetch_pages, page_items
from dalsegno.nodes.http_parameters import HttpParameters, Pagination, status_test
from dalsegno.nodes.http_request import Request, build_request
from dalsegno.nodes.http_response import Response, status_failure
from dalsegno.nodes.http_service import DEFAULT_HTTP_LIMITS, HttpLimits
from dalsegno.ports.node import NodeContext, NodeError


async def run_http(
    ctx: NodeContext,
    parameters: HttpParameters,
    clients: HttpClients,
    limits: HttpLimits = DEFAULT_HTTP_LIMITS,
) -> dict[str, Any]:
    """One run. What operators allow is judged before anything is sent."""
    parameters = within_limits(parameters, limits)
    named = parameters.credential or ctx.credential_name
    if named is not None and parameters.auth is not None:
        raise NodeError(
            "the node has both 'auth' and 'credentials'; keep one of them",
            code="INVALID_PARAMETERS",
            retryable=False,
        )
    credential = await ctx.acredential(named) if named is not None else None
    request = build_request(parameters, ctx.idempotency_key, credential)
    exchange = Exchange(clients, parameters, ctx.redact)
    started = time.perf_counter()
    try:
        async with asyncio.timeout(parameters.timeout):
            if parameters.pagination is None:
                output = await _single(ctx, parameters, exchange, request)
            else:
                output = await _paginated(ctx, parameters, exchange, request, parameters.pagination)
    except TimeoutError as error:
        raise timed_out(exchange.url, parameters.timeout) from error
    return output | {"duration_ms": round((time.perf_counter() - started) * 1000, 3)}


def within_limits(parameters: HttpParameters, limits: HttpLimits) -> HttpParameters:
    """The parameters, with defaults that are no larger than the limits. Raises NodeError where the document itself asks
    for more: a value that is silently cut would be found only when a request fails much later."""
    if parameters.timeout <= limits.timeout and parameters.max_response_bytes <= limits.response_bytes:
        return parameters
    given = parameters.model_fields_set
    if parameters.timeout > limits.timeout and "timeout" in given:
        raise over_limit("timeout", f"{parameters.timeout:g} s", "http_timeout", f"{limits.timeout:g} s")
    if parameters.max_response_bytes > limits.response_bytes and "max_response_bytes" in given:
        asked, allowed = f"{parameters.max_response_bytes:,} bytes", f"{limits.response_bytes:,} bytes"
        raise over_limit("max_response_bytes", asked, "http_response_bytes", allowed)
    return parameters.model_copy(
        update={
            "timeout": min(parameters.timeout, limits.timeout),
            "max_response_bytes": min(parameters.max_response_bytes, limits.response_bytes),
        }
    )


async def _single(
    ctx: NodeContext, parameters: HttpParameters, exchange: Exchange, request: Request
) -> dict[str, Any]:
    response = await exchange.fetch(request, parameters.max_response_bytes)
    await response.decode()
    _raise_for_status(ctx, parameters, response)
    return _head(response) | {"body": response.body}


async def _paginated(
    ctx: NodeContext, parameters: HttpParameters, exchange: Exchange, request: Request, pagination: Pagination
) -> dict[str, Any]:
    items: list[Any] = []
    pages = 0
    last: dict[str, Any] = {}
    async for response, more in fetch_pages(exchange, request, pagination, parameters.max_response_bytes):
        _raise_for_status(ctx, parameters, response)
        items.extend(page_items(response, pagination))
        pages += 1
        last = _head(response) | {"more": more}
        ctx.heartbeat()
    return last | {"body": items, "pages": pages}


def _raise_for_status(ctx: NodeContext, parameters: HttpParameters, response: Response) -> None:
    if status_test(parameters.raise_on_status)(response.status):
        raise status_failure(response, ctx.now, ctx.redact)


def _head(response: Response) -> dict[str, Any]:
    return {
        "status": response.status,
        "status_text": response.status_text,
        "headers": dict(response.headers),
    }
