"""Responses of the ``http`` node: reads the body up to a limit and converts it to JSON, text or base64.

* A body of more than `SMALL_BODY` is never converted to objects here. A subprocess reads it and writes it as JSON,
  which is passed on as `msgspec.Raw`.
* A response that exceeds `FREE_BYTES` waits for memory that it shares with other large responses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from msgspec import Raw
from multidict import CIMultiDictProxy
from yarl import URL

from dalsegno.nodes.http.body import body_value, is_json
from dalsegno.nodes.http.errors import shown_url, too_large
from dalsegno.nodes.http.service import LargeBodies
from dalsegno.ports.node import NodeError

MAX_RETRY_AFTER = 86_400.0
"""Seconds; a longer ``Retry-After`` of a server is cut to this."""

_CHUNK = 64 * 1024
SMALL_BODY = 64 * 1024
FREE_BYTES = 1024 * 1024
"""Bytes of a response that are read without reserving memory."""
_SHOWN_BODY = 2000


@dataclass(frozen=True, slots=True)
class Response:
    """A response as the server sent it."""

    url: URL
    status: int
    status_text: str
    headers: Mapping[str, str]
    content_type: str
    charset: str | None
    content: bytes | bytearray

    @property
    def is_small(self) -> bool:
        return len(self.content) <= SMALL_BODY

    def value(self) -> Any:
        """Return the body as a value, for small responses."""
        return body_value(self.content, self.content_type, self.charset)

    def shown(self) -> Any:
        """Return the body for an error object; None for a large JSON document, because half of one is useless."""
        if len(self.content) > _SHOWN_BODY and is_json(self.content_type):
            return None
        value = self.value()
        return value if isinstance(value, str) or len(self.content) <= _SHOWN_BODY else None


@contextmanager
def paused(deadline: asyncio.Timeout) -> Iterator[None]:
    """Stop the deadline while a large response waits for its subprocess: that time is not the server's."""
    clock, ends = asyncio.get_running_loop().time, deadline.when()
    began = clock()
    deadline.reschedule(None)
    try:
        yield
    finally:
        if ends is not None:
            deadline.reschedule(ends + clock() - began)


async def read_body(response: Response, large: LargeBodies, workflow: str) -> Any:
    """Return the value of a small body; a large one as `Raw`."""
    if response.is_small:
        return response.value()
    return Raw(
        await large.run(workflow, "response", response.content, response.content_type, response.charset)
    )


Hold = Callable[[int], Awaitable[None]]
"""Waits until the given number of bytes may be held in memory."""


async def read_response(reply: aiohttp.ClientResponse, limit: int, hold: Hold) -> Response:
    """Read the response in chunks; raise NodeError as soon as it is larger than ``limit``."""
    length = reply.content_length
    if length is not None and length > limit and reply.method != "HEAD":
        raise too_large(reply.url, limit)
    content = bytearray()
    async for chunk in reply.content.iter_chunked(_CHUNK):
        content += chunk
        if len(content) > limit:
            raise too_large(reply.url, limit)
        if len(content) > FREE_BYTES:
            await hold(limit)
    return Response(
        url=reply.url,
        status=reply.status,
        status_text=reply.reason or "",
        headers=_joined_headers(reply.headers),
        content_type=reply.content_type if "Content-Type" in reply.headers else "",
        charset=reply.charset,
        content=content,
    )


def status_failure(response: Response, now: float, redact: Callable[[str], str]) -> NodeError:
    """Return the failure for a status that ``raise_on_status`` names. Its code has the status, for retry policies.

    ``redact`` is applied before truncation, which could leave half of a secret that is no longer recognised.
    """
    body = response.shown()
    shown = redact(body)[:_SHOWN_BODY] if isinstance(body, str) else body
    return NodeError(
        f"{shown_url(response.url)} answered {response.status} {response.status_text}".rstrip(),
        code=f"HTTP_{response.status}",
        details={
            "status": response.status,
            "status_text": response.status_text,
            "url": shown_url(response.url),
            "body": shown,
        },
        retry_after=retry_after(response.headers.get("retry-after"), now),
    )


def retry_after(header: str | None, now: float) -> float | None:
    """Return the seconds to wait that a ``Retry-After`` header asks for, as seconds or as a date."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:18]), MAX_RETRY_AFTER)
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return min(max((when - datetime.fromtimestamp(now, UTC)).total_seconds(), 0.0), MAX_RETRY_AFTER)


def _joined_headers(headers: CIMultiDictProxy[str]) -> dict[str, str]:
    """Return headers with lower-case names.

    Repeated ones are joined (cookies by lines, since they may contain commas).
    """
    joined: dict[str, str] = {}
    for name, value in headers.items():
        key = name.lower()
        separator = "\n" if key == "set-cookie" else ", "
        joined[key] = f"{joined[key]}{separator}{value}" if key in joined else value
    return joined
