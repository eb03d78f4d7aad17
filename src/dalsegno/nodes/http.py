"""The ``http`` node: one exchange with an HTTP service, or several for paginated resources."""

from __future__ import annotations

from typing import Any

from dalsegno.errors import InternalError
from dalsegno.nodes.builder import node_type
from dalsegno.nodes.http_parameters import HttpParameters
from dalsegno.nodes.http_service import HttpService
from dalsegno.ports.node import NodeContext

_OUTPUT = {
    "type": "object",
    "properties": {
        "status": {"type": "integer"},
        "status_text": {"type": "string"},
        "headers": {"type": "object", "description": "Names in lower case."},
        "body": {"description": "JSON or text; binary content as {encoding, data, content_type, size}."},
        "duration_ms": {"type": "number"},
        "pages": {"type": "integer", "description": "With pagination: how many were fetched."},
        "more": {"type": "boolean", "description": "With pagination: whether `max_pages` cut it short."},
    },
}


@node_type("http", parameters=HttpParameters, aliases=("call_external_service",), output_schema=_OUTPUT)
async def http(ctx: NodeContext, parameters: HttpParameters) -> dict[str, Any]:
    """Sends an HTTP request; any status is a success unless `raise_on_status` names it."""
    from dalsegno.nodes.http_run import run_http  # noqa: PLC0415 - the client is loaded by the first request

    service = ctx.services.get("http")
    if not isinstance(service, HttpService):
        raise InternalError("the engine gives the http node no HttpService as service 'http'")
    return await run_http(ctx, parameters, service.clients(), service.limits)
