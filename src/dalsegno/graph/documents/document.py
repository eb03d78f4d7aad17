"""Reader of documents: text or bytes, JSON or YAML, to plain JSON data, with every limit checked before use.

* The result is safe to walk, store and send: dicts with text keys, lists, text, finite numbers, booleans and null,
  nested at most `MAX_DEPTH` deep, valid Unicode throughout.
* JSON is read more strictly than by the standard library: a repeated key is refused, with its place.
* YAML is read by the reader that front matter of scripts uses. Its errors become findings.
* The text readers raise `Refused`, which never leaves this package.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from dalsegno.errors import Finding, InvalidDefinition
from dalsegno.graph.documents.findings import pointer_to, quoted
from dalsegno.lang import yaml_text
from dalsegno.lang.expressions.syntax.lexer import is_unicode


class Refused(Exception):
    """The text is not valid data; ``rule`` is the rule of the first finding."""

    def __init__(self, rule: str, message: str, pointer: str = "") -> None:
        super().__init__(message)
        self.rule = rule
        self.findings: tuple[Finding, ...] = (Finding(pointer, rule, message),)

    @classmethod
    def of_findings(cls, findings: Sequence[Finding]) -> Refused:
        refusal = cls(findings[0].rule, findings[0].message, findings[0].pointer)
        refusal.findings = tuple(findings)
        return refusal


_LONG_NUMBER = re.compile(r"[0-9]{4301}")


def read_json(text: str) -> Any:
    """Read JSON text; raise `Refused` with line and column.

    Non-finite numbers are left to the caller, which knows their pointer.
    """
    repeated: list[tuple[dict[str, Any], str]] = []

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            counts = Counter(key for key, _ in pairs)
            repeated.extend((result, key) for key, count in counts.items() if count > 1)
        return result

    data = _load(text, collect)
    if repeated:
        raise Refused.of_findings(_locate(data, repeated))
    return data


def _load(text: str, collect: Any) -> Any:
    try:
        return json.loads(text, object_pairs_hook=collect)
    except json.JSONDecodeError as error:
        message = f"Line {error.lineno}, column {error.colno}: {error.msg}."
        raise Refused("syntax", message) from None
    except RecursionError:
        raise Refused("too-deep", "The document nests too deeply; flatten it.") from None
    except ValueError:
        # The only other error of the standard library: more digits than int() converts.
        found = _LONG_NUMBER.search(text)
        line = text.count("\n", 0, found.start()) + 1 if found else 1
        message = f"Line {line}: a number has more than 4,300 digits; write it as text."
        raise Refused("too-large", message) from None


def _locate(data: Any, repeated: list[tuple[dict[str, Any], str]]) -> list[Finding]:
    """Return findings for the objects with repeated keys, located by identity."""
    keys: dict[int, list[str]] = {}
    for where, key in repeated:
        keys.setdefault(id(where), []).append(key)
    findings: list[Finding] = []
    stack: list[tuple[str, Any]] = [("", data)]
    while stack:
        pointer, value = stack.pop()
        for key in keys.get(id(value), ()) if isinstance(value, dict) else ():
            message = f"The key {quoted(key)} appears twice in this object; keep one."
            findings.append(Finding(pointer_to(pointer, key), "duplicate-key", message))
        steps = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        stack.extend((pointer_to(pointer, step), child) for step, child in steps)
    return findings or [
        Finding("", "duplicate-key", "A key appears twice in an object that another key hides.")
    ]


def read_yaml(text: str, max_depth: int, max_repeated: int) -> Any:
    """Read YAML text; raise `Refused` with line and column.

    ``max_repeated`` limits, in characters, what aliases repeat.
    """
    try:
        return yaml_text.read_yaml(text, max_depth, max_repeated)
    except yaml_text.YamlProblem as problem:
        where = f"Line {problem.line}, column {problem.column}: " if problem.line else ""
        raise Refused(problem.rule, f"{where}{problem.message}.") from None


MAX_INTEGER_BITS = 14_284
"""4,300 decimal digits, the most that Python itself converts from and to text."""


SCHEMA_STEPS: Final = 3_000_000
"""Steps of checking one value against a JSON Schema."""
LIGHT_SCHEMA_STEPS: Final = 10_000
"""About five milliseconds: the most that a check may take on the event loop. A longer one runs in a subprocess."""


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    max_bytes: int = 10_000_000
    max_depth: int = 200


DEFAULT_DOCUMENT_LIMITS = DocumentLimits()


def read_document(
    source: str | bytes | Mapping[str, Any], limits: DocumentLimits = DEFAULT_DOCUMENT_LIMITS
) -> dict[str, Any]:
    """Return plain data; raise `InvalidDefinition` with every problem that prevents checking the graph."""
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
    """Parse JSON if the text looks like JSON. YAML's flow style looks the same, so YAML is tried second."""
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
    """Copy the source, so that the result shares nothing with the caller's objects."""
    _require_plain(source, limits)
    text = json.dumps(source, default=dict, ensure_ascii=False)
    _decode(text, limits)
    return json.loads(text)


def _require_plain(data: Any, limits: DocumentLimits) -> None:
    if _is_plain(data, limits.max_depth):
        return
    findings = [
        Finding(_pointer_of(trail), rule, message) for trail, rule, message in _impurities(data, limits)
    ]
    if findings:
        raise Refused.of_findings(findings)


def _is_plain(data: Any, max_depth: int) -> bool:
    """Return True if the document is certainly plain data. On False a thorough check follows."""
    level = [[data]]
    for _ in range(max_depth + 1):
        below: list[Any] = []
        for values in level:
            for value in values:
                kind = type(value)
                if kind is str:
                    if not (value.isascii() or is_unicode(value)):
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


# A step of the walk refers to its parent, so that pointers are built only for refused values.
_Trail = tuple[Any, ...]


def _pointer_of(trail: _Trail) -> str:
    steps: list[str | int] = []
    while trail:
        trail, step = trail
        steps.append(step)
    return pointer_to("", *reversed(steps))


def _impurities(data: Any, limits: DocumentLimits) -> Iterator[tuple[_Trail, str, str]]:
    """Yield what JSON cannot represent, level by level, without recursion."""
    level: list[tuple[_Trail, Any]] = [((), data)]
    values_left = limits.max_bytes
    for _ in range(limits.max_depth + 1):
        below: list[tuple[_Trail, Any]] = []
        for trail, value in level:
            if isinstance(value, str):
                if not (value.isascii() or is_unicode(value)):
                    yield (
                        trail,
                        "encoding",
                        "The text holds half of a surrogate pair, which is not a character.",
                    )
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
        elif not (key.isascii() or is_unicode(key)):
            yield trail, "encoding", "A key holds half of a surrogate pair, which is not a character."


def _bad_number(trail: _Trail, value: Any) -> Iterator[tuple[_Trail, str, str]]:
    if isinstance(value, float):
        if not isfinite(value):
            yield trail, "not-finite", "NaN and Infinity are not numbers of JSON; use null or text."
    elif not isinstance(value, int):
        yield trail, "not-json", f"A value of type {type(value).__name__} has no place in JSON."
    elif value.bit_length() > MAX_INTEGER_BITS:
        yield trail, "too-large", "The number has more than 4,300 digits; write it as text."
