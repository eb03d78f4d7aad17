"""Conversion of response bodies to values: JSON, text or base64.

The module imports no HTTP client, because the subprocesses that read large responses load it.
"""

from __future__ import annotations

import base64
import codecs
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dalsegno.core.values import MAX_DEPTH, encode_value, nesting
from dalsegno.nodes.data.conversion import ConversionError, read_json
from dalsegno.nodes.data.paths import parse_path, read_path
from dalsegno.nodes.parameters import json_type
from dalsegno.ports.node import NodeError

DEEPEST: Final = MAX_DEPTH - 2
"""Nesting limit of a large document. The node's output adds at most two levels; a deeper document stays text."""
_NO_CHARSETS = frozenset({"idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape", "mbcs"})
"""Python codecs that are not web charsets; some take quadratic time."""


def body_value(content: bytes | bytearray, content_type: str, charset: str | None) -> Any:
    """Return JSON if it is declared and valid; else text if decodable; else an object with base64."""
    if not content:
        return None if is_json(content_type) else ""
    text = _text(content, content_type, charset)
    if text is None:
        return {
            "encoding": "base64",
            "data": base64.b64encode(content).decode(),
            "content_type": content_type,
            "size": len(content),
        }
    if is_json(content_type):
        try:
            return read_json(text)
        except ConversionError:
            return text
    return text


def body_json(content: bytes | bytearray, content_type: str, charset: str | None) -> bytes:
    """Return the same value as JSON in the canonical form of stored values; raise NotJson."""
    if is_json(content_type) and charset in (None, "utf-8"):
        raw = _canonical(content)
        if raw is not None:
            return raw
    value = body_value(content, content_type, charset)
    raw = encode_value(value, "the body")
    return (
        raw if isinstance(value, str) or nesting(raw) <= DEEPEST else _as_text(content, content_type, charset)
    )


def _canonical(content: bytes | bytearray) -> bytes | None:
    """Re-encode a body that a strict decoder accepts; None for another one.

    This takes a fraction of the memory of Python's own decoder.
    """
    try:
        raw = msgspec.json.encode(msgspec.json.decode(content))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return raw if nesting(raw) <= DEEPEST else None


def _as_text(content: bytes | bytearray, content_type: str, charset: str | None) -> bytes:
    return encode_value(_text(content, content_type, charset), "the body")


def page_parts(
    view: Mapping[str, Any], items_path: str | None, next_path: str | None
) -> tuple[list[Any], Any]:
    """Return the items of a page (its list, or its body as the only item), and the value at ``next_path``.

    ``view`` is the object that paths refer to: status, headers and body.
    """
    following = read_path(view, parse_path(next_path)) if next_path is not None else None
    if items_path is None:
        return [view["body"]], following
    items = read_path(view, parse_path(items_path))
    if items is not None and not isinstance(items, list):
        raise NodeError(
            f"'items_path' ({items_path}) should lead to a list, but leads to {json_type(items)}",
            code="HTTP_PAGINATION",
            retryable=False,
        )
    return items or [], following


def is_empty(items: list[Any], body: Any, items_path: str | None) -> bool:
    """Return True if a page has no items, which ends counted pagination."""
    return not items if items_path is not None else body in (None, "", [], {})


def next_address(following: Any, path: str) -> str | None:
    if following is None or following == "":
        return None
    if not isinstance(following, str):
        raise NodeError(
            f"'next_url_path' ({path}) should lead to an address, but leads to {json_type(following)}",
            code="HTTP_PAGINATION",
            retryable=False,
        )
    return following


def page_json(
    head: Mapping[str, Any],
    content: bytes,
    content_type: str,
    charset: str | None,
    items_path: str | None,
    next_path: str | None,
) -> dict[str, Any]:
    """Return a page in the form passed between processes: the items as JSON, without the brackets of their list."""
    value = msgspec.json.decode(body_json(content, content_type, charset))
    try:
        items, following = page_parts({**head, "body": value}, items_path, next_path)
        address = next_address(following, next_path or "")
    except NodeError as error:
        return {"refused": error.failure.message}
    return {
        "items": msgspec.json.encode(items)[1:-1],
        "is_empty": is_empty(items, value, items_path),
        "next": address,
    }


def _text(content: bytes | bytearray, content_type: str, charset: str | None) -> str | None:
    if charset is None and _is_binary(content_type):
        return None
    try:
        return content.decode(_codec(charset))
    except (UnicodeError, LookupError):
        return None


def _codec(charset: str | None) -> str:
    if charset is None or codecs.lookup(charset).name.replace("-", "_") in _NO_CHARSETS:
        return "utf-8-sig"
    return charset


def is_json(content_type: str) -> bool:
    return content_type in ("application/json", "text/json") or content_type.endswith("+json")


def _is_binary(content_type: str) -> bool:
    kind, _, _ = content_type.partition("/")
    return kind in ("image", "audio", "video", "font") and not content_type.endswith("+xml")
