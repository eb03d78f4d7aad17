"""Reading a document: text or bytes, JSON or YAML, into plain JSON data, with every limit checked before use.

What leaves this module is safe to walk, to store and to send: dicts with text keys, lists, text, finite numbers,
booleans and null, nested at most `MAX_DEPTH` deep, valid Unicode throughout.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from dalsegno.errors import Finding, InvalidDefinition
from dalsegno.graph.findings import pointer_to
from dalsegno.graph.json_text import read_json
from dalsegno.graph.refusal import Refused
from dalsegno.graph.yaml_text import read_yaml

MAX_INTEGER_BITS = 14_284
"""4,300 decimal digits: what Python itself converts from and to text."""


SCHEMA_STEPS: Final = 3_000_000
"""Of checking one value against a JSON Schema."""


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    max_bytes: int = 10_000_000
    max_depth: int = 200


DEFAULT_DOCUMENT_LIMITS = DocumentLimits()


def read_document(
    source: str | bytes | Mapping[str, Any], limits: DocumentLimits = DEFAULT_DOCUMENT_LIMITS
) -> dict[str, Any]:
    """Plain data, or `InvalidDefinition` with everything that stands in the way of looking at the graph."""
    try:
        data = _detached(source, limits) if isinstance(source, Mapping) else _parsed(source, limits)
    except Refused as refusal:
        raise InvalidDefinition(refusal.findings) from None
    if not isinstance(data, dict):
        message = "The document must be an object with 'nodes' and 'edges' (or 'dag')."
        raise InvalidDefinition([Finding("", "not-an-object", message)])
    return data


def _parsed(source: str | bytes, limits: DocumentLimits) -> Any:
    text = _decode(source, limits)
    data = _parse_text(text, limits)
    _require_plain(data, limits)
    return data


def _parse_text(text: str, limits: DocumentLimits) -> Any:
    """JSON where it looks like JSON; YAML's flow style looks the same, so it gets the second try."""
    if not text.lstrip().startswith(("{", "[")):
        return read_yaml(text, limits.max_depth, limits.max_bytes)
    try:
        return read_json(text)
    except Refused as refusal:
        if refusal.rule != "syntax":
            raise
        try:
            return read_yaml(text, limits.max_depth, limits.max_bytes)
        except Refused:
            raise refusal from None


def _decode(source: str | bytes, limits: DocumentLimits) -> str:
    size = (
        len(source)
        if isinstance(source, bytes) or source.isascii()
        else len(source.encode("utf-8", "replace"))
    )
    if size > limits.max_bytes:
        raise Refused(
            "too-large", f"The document has {size:,} bytes; at most {limits.max_bytes:,} are accepted."
        )
    if isinstance(source, str):
        return source.removeprefix("\ufeff")
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        message = f"Byte {error.start:,} (line {line}) is not valid UTF-8; save the document as UTF-8."
        raise Refused("encoding", message) from None


def _detached(source: Mapping[str, Any], limits: DocumentLimits) -> Any:
    """A copy that shares nothing with the caller's objects."""
    _require_plain(source, limits)
    text = json.dumps(source, default=dict, ensure_ascii=False)
    _decode(text, limits)
    return json.loads(text)


def _require_plain(data: Any, limits: DocumentLimits) -> None:
    if _is_plain(data, limits.max_depth):
        return
    findings = [Finding(_trail(trail), rule, message) for trail, rule, message in _impurities(data, limits)]
    if findings:
        raise Refused.because(findings)


def _is_plain(data: Any, max_depth: int) -> bool:
    """The quick look at a document without problems: what it does not know for sure is looked at again."""
    level = [[data]]
    for _ in range(max_depth + 1):
        below: list[Any] = []
        for values in level:
            for value in values:
                kind = type(value)
                if kind is str:
                    if not (value.isascii() or _encodable(value)):
                        return False
                elif kind is dict:
                    if not _ascii_keys(value):
                        return False
                    below.append(value.values())
                elif kind is list:
                    below.append(value)
                elif not (
                    value is None or kind is bool or (kind is int and -(2**63) < value < 2**63)
                ) and not (kind is float and isfinite(value)):
                    return False
        if not below:
            return True
        level = below
    return False


def _ascii_keys(value: dict[Any, Any]) -> bool:
    try:
        return "".join(value).isascii()
    except TypeError:
        return False


# A step of the walk knows its parent's, so that pointers are built only for what is refused.
_Trail = tuple[Any, ...]


def _trail(trail: _Trail) -> str:
    steps: list[str | int] = []
    while trail:
        trail, step = trail
        steps.append(step)
    return pointer_to("", *reversed(steps))


def _impurities(data: Any, limits: DocumentLimits) -> Iterator[tuple[_Trail, str, str]]:
    """What JSON cannot carry, level by level, without recursion."""
    level: list[tuple[_Trail, Any]] = [((), data)]
    values_left = limits.max_bytes
    for _ in range(limits.max_depth + 1):
        below: list[tuple[_Trail, Any]] = []
        for trail, value in level:
            if isinstance(value, str):
                if not (value.isascii() or _encodable(value)):
                    yield trail, "encoding", "The text holds half of a surrogate pair, which is no character."
            elif isinstance(value, Mapping):
                yield from _bad_keys(trail, value)
                below.extend([((trail, key), child) for key, child in value.items()])
            elif isinstance(value, list):
                below.extend([((trail, index), child) for index, child in enumerate(value)])
            elif value is not None and not isinstance(value, bool):
                yield from _bad_number(trail, value)
        values_left -= len(below)
        if not below or values_left < 0:
            break
        level = below
    else:
        yield (
            level[0][0],
            "too-deep",
            f"The document nests more than {limits.max_depth} levels deep; flatten it.",
        )
        return
    if values_left < 0:
        yield (), "too-large", f"The document holds more than {limits.max_bytes:,} values."


def _bad_keys(trail: _Trail, value: Mapping[Any, Any]) -> Iterator[tuple[_Trail, str, str]]:
    for key in value:
        if not isinstance(key, str):
            yield trail, "not-json", f"The key {key!r} is not text; write it in quotes."
        elif not (key.isascii() or _encodable(key)):
            yield trail, "encoding", "A key holds half of a surrogate pair, which is no character."


def _bad_number(trail: _Trail, value: Any) -> Iterator[tuple[_Trail, str, str]]:
    if isinstance(value, float):
        if not isfinite(value):
            yield trail, "not-finite", "NaN and Infinity are not numbers of JSON; use null or text."
    elif not isinstance(value, int):
        yield trail, "not-json", f"A value of type {type(value).__name__} has no place in JSON."
    elif value.bit_length() > MAX_INTEGER_BITS:
        yield trail, "too-large", "The number has more than 4,300 digits; write it as text."


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
