"""Execution of the ``http`` node: sends requests, follows redirects and pages.

* The egress policy is applied to every redirect and page.
* The module is separate from the node's description, so that only workflows that use HTTP load a client.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote_plus

import aiohttp
from msgspec import Raw
from multidict import CIMultiDict
from yarl import URL

from dalsegno.core.values import encode_value
from dalsegno.errors import CredentialRefused
from dalsegno.nodes.http.body import is_empty, next_address, page_parts
from dalsegno.nodes.http.client import HttpClients
from dalsegno.nodes.http.egress import EgressDenied
from dalsegno.nodes.http.errors import (
    blocked,
    exchange_failure,
    lookups_busy,
    over_limit,
    timed_out,
    too_many_redirects,
)
from dalsegno.nodes.http.name_lookups import LookupsBusy, on_behalf_of
from dalsegno.nodes.http.node import LINK_HEADER, HttpParameters, Pagination, status_test
from dalsegno.nodes.http.request import IDEMPOTENCY_KEY, Request, build_request
from dalsegno.nodes.http.response import (
    FREE_BYTES,
    SMALL_BODY,
    Hold,
    Response,
    paused,
    read_body,
    read_response,
    status_failure,
)
from dalsegno.nodes.http.service import HttpLimits, HttpService, LargeBodies
from dalsegno.ports.node import NodeContext, NodeError

MAX_REDIRECTS = 10
_REDIRECTS = (301, 302, 303, 307, 308)


class Exchange:
    """The requests of one run of a node. ``url`` is the last requested address, for messages."""

    def __init__(
        self, clients: HttpClients, parameters: HttpParameters, redact: Callable[[str], str], hold: Hold
    ) -> None:
        self._hold = hold
        self._clients = clients
        self._parameters = parameters
        self._redact = redact
        self.url = URL()

    async def fetch(self, request: Request, limit: int) -> Response:
        """Return the final response; raise NodeError for anything else."""
        for _ in range(MAX_REDIRECTS + 1):
            found = await self._hop(request, limit)
            if isinstance(found, Response):
                return found
            request = found
        raise too_many_redirects(self.url, MAX_REDIRECTS)

    async def _hop(self, request: Request, limit: int) -> Response | Request:
        """Send one request; return the response, or the request that a redirect asks for."""
        self.url = request.url
        if request.credential is None:
            self._refuse_reflected_secret(request.url)
        try:
            self._clients.check_host(request.url.host or "")
            async with self._send(request) as reply:
                location = reply.headers.get("Location")
                if self._parameters.follow_redirects and reply.status in _REDIRECTS and location:
                    return request.redirected(location, reply.status)
                return await read_response(reply, limit, self._hold)
        except EgressDenied as denied:
            raise blocked(request.url, denied) from denied
        except LookupsBusy as busy:
            raise lookups_busy(request.url, busy) from busy
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise  # the deadline of the whole run, handled by the caller
            raise exchange_failure(error, request.url) from error

    def _refuse_reflected_secret(self, url: URL) -> None:
        """Refuse a redirect or next page whose address contains a credential that the server reflected.

        A run without credentials knows no secrets.
        """
        for text in (str(url), unquote_plus(str(url))):
            if self._redact(text) != text:
                raise CredentialRefused(
                    f"a redirect or next page would carry a credential to {url.host}; nothing was sent there"
                )

    def _send(self, request: Request) -> aiohttp.client._RequestContextManager:
        return self._clients.session().request(
            request.method,
            request.url,
            headers=request.headers,
            data=request.body,
            allow_redirects=False,
            ssl=not self._parameters.ignore_ssl,
        )


@dataclass(slots=True)
class Page:
    """The items of one response, and the address of the next page."""

    items: list[Any] | bytes
    """The values, or for a large page their JSON without the brackets of the list."""
    is_empty: bool
    next: str | None
    more: bool = False
    """True if another page follows."""


class Items:
    """The items of all pages. A large total is kept as JSON."""

    def __init__(self) -> None:
        self.size = 0
        self._values: list[Any] = []
        self._parts: list[bytes] = []

    def add(self, page: Page, size: int) -> None:
        self.size += size
        if isinstance(page.items, bytes):
            self._keep_values_as_json()
            if page.items:
                self._parts.append(page.items)
            return
        self._values += page.items
        if self.size > SMALL_BODY:
            self._keep_values_as_json()

    def joined(self) -> list[Any] | Raw:
        if not self._parts:
            return self._values
        self._keep_values_as_json()
        return Raw(b"[" + b",".join(self._parts) + b"]")

    def _keep_values_as_json(self) -> None:
        if self._values:
            self._parts.append(encode_value(self._values, "the items")[1:-1])
            self._values = []


class Pages:
    def __init__(
        self,
        exchange: Exchange,
        pagination: Pagination,
        large: LargeBodies,
        workflow: str,
        deadline: asyncio.Timeout,
    ) -> None:
        self._deadline = deadline
        self._exchange = exchange
        self._pagination = pagination
        self._large = large
        self._workflow = workflow

    async def fetch(self, first: Request, limit: int) -> AsyncIterator[tuple[Response, Page]]:
        """Yield the pages in order; end early at a status other than 2xx."""
        request = _numbered(first, self._pagination, 0)
        for position in range(self._pagination.max_pages):
            response = await self._exchange.fetch(_with_own_key(request, position), limit)
            limit -= len(response.content)
            with paused(self._deadline):
                page = await self._read(response)
            following = self._next(request, response, page, position + 1)
            page.more = following is not None
            yield response, page
            if following is None:
                return
            request = following

    async def _read(self, response: Response) -> Page:
        items_path, next_path = self._pagination.items_path, self._pagination.next_url_path
        if next_path == LINK_HEADER:
            next_path = None
        view = {"status": response.status, "headers": dict(response.headers)}
        if response.is_small:
            body = response.value()
            items, following = page_parts({**view, "body": body}, items_path, next_path)
            return Page(items, is_empty(items, body, items_path), next_address(following, next_path or ""))
        found = await self._large.run(
            self._workflow,
            "page",
            view,
            response.content,
            response.content_type,
            response.charset,
            items_path,
            next_path,
        )
        if "refused" in found:
            raise NodeError(found["refused"], code="HTTP_PAGINATION", retryable=False)
        return Page(found["items"], found["is_empty"], found["next"])

    def _next(self, request: Request, response: Response, page: Page, position: int) -> Request | None:
        if not 200 <= response.status < 300:
            return None
        if self._pagination.next_url_path == LINK_HEADER:
            page.next = _link_target(response.headers.get("link", ""))
        if self._pagination.next_url_path is not None:
            return request.moved_to(page.next) if page.next is not None else None
        return None if page.is_empty else _numbered(request, self._pagination, position)


def _link_target(header: str) -> str | None:
    """Return the target of ``rel="next"`` in a Link header."""
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
    """Give each page its own idempotency key: a shared key would replay the first page."""
    key = request.headers.get(IDEMPOTENCY_KEY)
    if key is None or position == 0:
        return request
    headers: CIMultiDict[str] = request.headers.copy()
    headers[IDEMPOTENCY_KEY] = f"{key}-{position + 1}"
    return replace(request, headers=headers)


async def run_http(ctx: NodeContext, parameters: HttpParameters, service: HttpService) -> dict[str, Any]:
    """Run the node once. Operator limits are checked before the first request."""
    parameters = within_limits(parameters, service.limits)
    named = parameters.credential or ctx.credential_name
    if named is not None and parameters.auth is not None:
        raise NodeError(
            "the node has both 'auth' and 'credentials'; keep one of them",
            code="INVALID_PARAMETERS",
            retryable=False,
        )
    credential = await ctx.acredential(named) if named is not None else None
    request = build_request(parameters, ctx.idempotency_key, credential)
    on_behalf_of.set(ctx.workflow)
    started = time.perf_counter()
    run = Run(ctx, parameters, service)
    try:
        async with run.deadline, run.places:
            output = await run.output(request)
    except TimeoutError as error:
        raise timed_out(run.exchange.url, parameters.timeout) from error
    return output | {"duration_ms": round((time.perf_counter() - started) * 1000, 3)}


class Run:
    """The exchanges of one run. Its large responses share one reservation in the process's memory limit."""

    def __init__(self, ctx: NodeContext, parameters: HttpParameters, service: HttpService) -> None:
        self._ctx = ctx
        self._parameters = parameters
        self._large = service.large
        self._holds = False
        self.deadline = asyncio.timeout(parameters.timeout)
        self.places = AsyncExitStack()
        self.exchange = Exchange(service.clients(), parameters, ctx.redact, self._hold)

    async def output(self, request: Request) -> dict[str, Any]:
        if self._parameters.pagination is None:
            return await self._single(request)
        return await self._paginated(request, self._parameters.pagination)

    async def _hold(self, size: int) -> None:
        """Reserve ``size`` bytes, once for all pages of the run."""
        if not self._holds:
            await self.places.enter_async_context(self._large.place(self._ctx.workflow, size))
            self._holds = True

    async def _single(self, request: Request) -> dict[str, Any]:
        response = await self.exchange.fetch(request, self._parameters.max_response_bytes)
        self._raise_for_status(response)
        return _head(response) | {"body": await self._read(response)}

    async def _read(self, response: Response) -> Any:
        with paused(self.deadline):
            return await read_body(response, self._large, self._ctx.workflow)

    async def _paginated(self, request: Request, pagination: Pagination) -> dict[str, Any]:
        items = Items()
        last: dict[str, Any] = {}
        pages = Pages(self.exchange, pagination, self._large, self._ctx.workflow, self.deadline)
        number = 0
        async for response, page in pages.fetch(request, self._parameters.max_response_bytes):
            self._raise_for_status(response)
            items.add(page, len(response.content))
            if items.size > FREE_BYTES:
                await self._hold(self._parameters.max_response_bytes)
            number += 1
            last = _head(response) | {"more": page.more}
            self._ctx.heartbeat()
        return last | {"body": items.joined(), "pages": number}

    def _raise_for_status(self, response: Response) -> None:
        if status_test(self._parameters.raise_on_status)(response.status):
            raise status_failure(response, self._ctx.now, self._ctx.redact)


def within_limits(parameters: HttpParameters, limits: HttpLimits) -> HttpParameters:
    """Return the parameters with defaults cut to the limits.

    Raises NodeError if the document itself asks for more: silent truncation would show only when a request fails much
    later.
    """
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


def _head(response: Response) -> dict[str, Any]:
    return {
        "status": response.status,
        "status_text": response.status_text,
        "headers": dict(response.headers),
    }
