"""User values as JSON bytes and back: what may travel, and a precise word about what may not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from dalsegno.errors import NotJson

MAX_DEPTH = 200

_decode = msgspec.json.Decoder().decode


def _convert(value: Any) -> Any:
    """Types msgspec does not know itself: Pydantic models speak for themselves."""
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json", round_trip=True)  # fields, from which it can be made again: nothing computed
    raise TypeError(type(value).__name__)


_encode = msgspec.json.Encoder(enc_hook=_convert).encode


def encode_value(value: Any, what: str = "the value") -> bytes:
    """JSON of a value, or NotJson that names the place inside ``what`` that JSON cannot carry."""
    if value is None:
        return b"null"
    try:
        raw = _encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise NotJson(f"{what} is not JSON: {_culprit(value) or error}") from None
    if b"null" in raw and (place := _not_finite(value)) is not None:
        raise NotJson(f"{what} is not JSON: {place}")
    if len(raw) > MAX_DEPTH and raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _depth(raw) > MAX_DEPTH:
        raise NotJson(f"{what} is nested more than {MAX_DEPTH} levels deep")
    return raw


def decode_value(raw: bytes | msgspec.Raw) -> Any:
    return _decode(raw)


def _not_finite(value: Any) -> str | None:
    """msgspec writes NaN and infinities as null; they are refused instead of being changed silently."""
    for path, found in _walk(value):
        if isinstance(found, float) and not math.isfinite(found):
            return f"{path} is {found}, which JSON has no word for"
    return None


def _culprit(value: Any) -> str | None:
    for path, found in _walk(value):
        problem = _problem(found)
        if problem is not None:
            return f"{path} {problem}"
    return None


def _problem(value: Any) -> str | None:
    if isinstance(value, str):
        return None if value.isascii() or is_unicode(value) else "holds a character that is not valid Unicode"
    if isinstance(value, int) and value.bit_length() > 14_000:
        return "is an integer of more than 4,300 digits"
    try:
        _encode(value)
    except TypeError:
        return f"is of type {type(value).__name__}; return plain data, a dataclass or a Pydantic model"
    except (ValueError, RecursionError):
        return None
    return None


def is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _walk(value: Any) -> Iterator[tuple[str, Any]]:
    """Leaves first-met first, with their paths; containers that contain themselves end at the depth limit."""
    stack: list[tuple[str, Any, int]] = [("$", value, 0)]
    while stack:
        path, found, depth = stack.pop()
        if depth > MAX_DEPTH:
            continue
        if isinstance(found, dict):
            stack.extend((f"{path}.{key}", inner, depth + 1) for key, inner in reversed(found.items()))
        elif isinstance(found, list | tuple | set | frozenset):
            numbered = list(enumerate(found))
            stack.extend((f"{path}[{index}]", inner, depth + 1) for index, inner in reversed(numbered))
        else:
            yield path, found


def _depth(raw: bytes) -> int:
    """Nesting of valid JSON, without recursion."""
    deepest = depth = 0
    in_string = escaped = False
    for byte in raw:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in (0x5B, 0x7B):
            depth += 1
            deepest = max(deepest, depth)
        elif byte in (0x5D, 0x7D):
            depth -= 1
    return deepest
