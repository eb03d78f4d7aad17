"""Follows the pages of a paginated resource for the ``http`` node."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from multidict import CIMultiDict

from dalsegno.nodes.http_exchange import Exchange
from dalsegno.nodes.http_parameters import LINK_HEADER, Pagination
from dalsegno.nodes.http_request import IDEMPOTENCY_KEY, Request
from dalsegno.nodes.http_response import Response
from dalsegno.nodes.parameters import json_type
from dalsegno.nodes.paths import parse_path, read_path
from dalsegno.ports.node import NodeError


async def fetch_pages(
    exchange: Exchange, first: Request, pagination: Pagination, limit: int
) -> AsyncIterator[tuple[Response, bool]]:
    """The pages in order, each with whether another would follow it; ends early at a status other than 2xx."""
    request = _numbered(first, pagination, 0)
    for position in range(pagination.max_pages):
        response = await exchange.fetch(_with_own_key(request, position), limit)
        await response.decode()
        limit -= len(response.content)
        following = _next(request, response, pagination, position + 1)
        yield response, following is not None
        if following is None:
            return
        request = following


def page_view(response: Response) -> dict[str, Any]:
    """What the paths of a pagination look into."""
    return {"status": response.status, "headers": dict(response.headers), "body": response.body}


def page_items(response: Response, pagination: Pagination) -> list[Any]:
    """The page's own list, or the page's body as the only item."""
    if pagination.items_path is None:
        return [response.body]
    items = read_path(page_view(response), parse_path(pagination.items_path))
    if items is not None and not isinstance(items, list):
        raise NodeError(
            f"'items_path' ({pagination.items_path}) should lead to a list, but leads to {json_type(items)}",
            code="HTTP_PAGINATION",
            retryable=False,
        )
    return items or []


def _next(request: Request, response: Response, pagination: Pagination, position: int) -> Request | None:
    if not 200 <= response.status < 300:
        return None
    if pagination.next_url_path is not None:
        address = _next_address(response, pagination.next_url_path)
        return request.moved_to(address) if address is not None else None
    if pagination.items_path is not None and not page_items(response, pagination):
        return None
    if pagination.items_path is None and response.body in (None, "", [], {}):
        return None
    return _numbered(request, pagination, position)


def _next_address(response: Response, path: str) -> str | None:
    if path == LINK_HEADER:
        return _link_target(response.headers.get("link", ""))
    address = read_path(page_view(response), parse_path(path))
    if address is None or address == "":
        return None
    if not isinstance(address, str):
        raise NodeError(
            f"'next_url_path' ({path}) should lead to an address, but leads to {json_type(address)}",
            code="HTTP_PAGINATION",
            retryable=False,
        )
    return address


def _link_target(header: str) -> str | None:
    """The target of ``rel="next"`` in a Link header."""
    for link in header.split(","):
        target, _, attributes = link.partition(";")
        rels = [
            part.partition("=")[2].strip(' "') for part in attributes.split(";") if "rel=" in part.lower()
        ]
        if any("next" in rel.lower().split() for rel in rels):
            return target.strip().strip("<>")
    return None


def _numbered(request: Request, pagination: Pagination, position: int) -> Request:
    if pagination.page_param is None:
        return request
    page = str(pagination.start_page + position)
    return replace(request, url=request.url.update_query({pagination.page_param: page}))


def _with_own_key(request: Request, position: int) -> Request:
    """Each page is a request of its own: one idempotency key for all would replay the first."""
    key = request.headers.get(IDEMPOTENCY_KEY)
    if key is None or position == 0:
        return request
    headers: CIMultiDict[str] = request.headers.copy()
    headers[IDEMPOTENCY_KEY] = f"{key}-{position + 1}"
    return replace(request, headers=headers)
