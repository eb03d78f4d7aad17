"""Reads responses of the ``http`` node: streams the body up to a limit and turns it into JSON, text or base64."""

from __future__ import annotations

import asyncio
import base64
import codecs
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

from dalsegno.nodes.conversion import ConversionError, read_json
from dalsegno.nodes.http_errors import shown_url, too_large
from dalsegno.ports.node import NodeError

MAX_RETRY_AFTER = 86_400.0
"""A server may ask for patience, not for a year of it."""

_CHUNK = 64 * 1024
_LARGE_BODY = 256 * 1024
_NO_CHARSETS = frozenset({"idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape", "mbcs"})
"""Codecs of Python that are no charsets of the web; some take quadratic time."""
_SHOWN_BODY = 2000


@dataclass(frozen=True)  # no slots: the decoded body is kept on it
class Response:
    """What came back, still as the server sent it."""

    url: URL
    status: int
    status_text: str
    headers: Mapping[str, str]
    content_type: str
    charset: str | None
    content: bytes | bytearray

    @cached_property
    def body(self) -> Any:
        """JSON where the server says so and it is; text where it can be read; else an object holding base64."""
        if not self.content:
            return None if _is_json(self.content_type) else ""
        text = self._text()
        if text is None:
            return {
                "encoding": "base64",
                "data": base64.b64encode(self.content).decode(),
                "content_type": self.content_type,
                "size": len(self.content),
            }
        if _is_json(self.content_type):
            try:
                return read_json(text)
            except ConversionError:
                return text
        return text

    def _text(self) -> str | None:
        if self.charset is None and _is_binary(self.content_type):
            return None
        try:
            return self.content.decode(_codec(self.charset))
        except (UnicodeError, LookupError):
            return None

    async def decode(self) -> None:
        """Decode the body, in a thread if it is large: parsing must not hold up the event loop."""
        if len(self.content) < _LARGE_BODY:
            _ = self.body
        else:
            await asyncio.to_thread(lambda: self.body)


async def read_response(reply: aiohttp.ClientResponse, limit: int) -> Response:
    """The response, read piece by piece; raises NodeError as soon as it is larger than ``limit``."""
    length = reply.content_length
    if length is not None and length > limit and reply.method != "HEAD":
        raise too_large(reply.url, limit)
    content = bytearray()
    async for chunk in reply.content.iter_chunked(_CHUNK):
        content += chunk
        if len(content) > limit:
            raise too_large(reply.url, limit)
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
    """The failure for a status that ``raise_on_status`` names; its code carries the status, for retry policies.
    ``redact`` comes before the cut, which could leave half of a secret that nobody recognises."""
    body = response.body
    shown = redact(body)[:_SHOWN_BODY] if isinstance(body, str) else body
    if len(response.content) > _SHOWN_BODY and not isinstance(body, str):
        shown = None  # too large for an error object, and half of a JSON document helps no one
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
    """Seconds a ``Retry-After`` asks to wait: it holds seconds or a date."""
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
    """Names in lower case; repeated headers are joined (cookies by lines, since they may hold commas)."""
    joined: dict[str, str] = {}
    for name, value in headers.items():
        key = name.lower()
        separator = "\n" if key == "set-cookie" else ", "
        joined[key] = f"{joined[key]}{separator}{value}" if key in joined else value
    return joined


def _codec(charset: str | None) -> str:
    if charset is None or codecs.lookup(charset).name.replace("-", "_") in _NO_CHARSETS:
        return "utf-8-sig"
    return charset


def _is_json(content_type: str) -> bool:
    return content_type in ("application/json", "text/json") or content_type.endswith("+json")


def _is_binary(content_type: str) -> bool:
    kind, _, _ = content_type.partition("/")
    return kind in ("image", "audio", "video", "font") and not content_type.endswith("+xml")
