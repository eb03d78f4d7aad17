"""Basics of JSON Schema support: dialects, references within one document, short texts for messages.

A schema is one self-contained document. A reference is a fragment of it: ``#``, ``#/a/pointer`` or ``#anchor``. No
function here opens a file or a connection, and nothing changes the base of a reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote

LATEST: Final = 2020
DIALECTS: dict[str, int] = {
    "http://json-schema.org/draft-04/schema": 4,
    "http://json-schema.org/draft-06/schema": 6,
    "http://json-schema.org/draft-07/schema": 7,
    "https://json-schema.org/draft/2019-09/schema": 2019,
    "https://json-schema.org/draft/2020-12/schema": 2020,
}
REFERENCES = {"$ref": 0, "$recursiveRef": 2019, "$dynamicRef": 2020}
"""Reference keywords, and the first dialect that has them."""
LONGEST_PATTERN = 1_000
LONGEST_STEP = 200
LONGEST_MESSAGE = 300
LONGEST_SHOWN = 80
MOST_SHOWN = 6


class Path(NamedTuple):
    """A place in a document, linked from the inside out. It is written as a pointer only for a problem."""

    parent: Path | None
    step: str | int


Place: TypeAlias = "Path | None"


def pointer(path: Place) -> str:
    """Return the pointer according to RFC 6901. An overlong step is truncated."""
    steps: list[str] = []
    while path is not None:
        text = str(path.step)
        cut = text if len(text) <= LONGEST_STEP else f"{text[:LONGEST_STEP]}…"
        steps.append("/" + cut.replace("~", "~0").replace("/", "~1"))
        path = path.parent
    return "".join(reversed(steps))


def dialect_of(schema: Any) -> int | None:
    """Return the dialect that ``$schema`` of a root names; None for an unknown one."""
    named = schema.get("$schema") if isinstance(schema, Mapping) else None
    if named is None:
        return LATEST
    return DIALECTS.get(named.removesuffix("#")) if isinstance(named, str) else None


def is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


# -- references -------------------------------------------------------------------------------------------------


def target_of(root: Any, reference: str, anchors: Mapping[str, Any]) -> tuple[Any, Place]:
    """Return the target of a reference within ``root`` and its place; raise LookupError if there is none."""
    if not reference.startswith("#"):
        raise LookupError(reference)
    fragment = unquote(reference[1:])
    if fragment and not fragment.startswith("/"):
        return anchors[fragment], None
    found, place = root, None
    for step in fragment.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found[name]
        elif isinstance(found, list) and name.isascii() and name.isdigit() and len(name) < 10:
            found = found[int(name)]
        else:
            raise LookupError(reference)
        place = Path(place, name)
    return found, place


def anchors_of(root: Any, dialect: int) -> dict[str, Any]:
    """Return all named schemas by anchor."""
    found: dict[str, Any] = {}
    for value in _objects(root):
        for name in _anchor_names(value, dialect):
            found.setdefault(name, value)
    return found


def _anchor_names(value: Mapping[str, Any], dialect: int) -> Iterator[str]:
    if dialect < 2019:
        named = value.get("id" if dialect == 4 else "$id")
        if isinstance(named, str) and named.startswith("#") and len(named) > 1:
            yield named[1:]
        return
    for key in ("$anchor", "$dynamicAnchor"):
        named = value.get(key)
        if isinstance(named, str):
            yield named


def size_of(root: Any, most: int) -> int:
    """Return the number of objects in ``root``; stop counting beyond ``most``."""
    return sum(1 for _ in islice(_objects(root), most + 1))


def _objects(root: Any) -> Iterator[dict[str, Any]]:
    stack = [root]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            yield value
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)


# -- texts -----------------------------------------------------------------------------------------


def shown(value: Any, depth: int = 2) -> str:
    """Format the beginning of a value for a message, in constant time."""
    if isinstance(value, str):
        return repr(value) if len(value) <= LONGEST_SHOWN else f"{value[:LONGEST_SHOWN]!r}…"
    if isinstance(value, int) and value.bit_length() > LONGEST_SHOWN:
        return f"a number of {value.bit_length()} bits"
    if not isinstance(value, dict | list):
        return repr(value)
    if depth == 0:
        parts = ["…"] if value else []
    elif isinstance(value, list):
        parts = [shown(each, depth - 1) for each in islice(value, MOST_SHOWN)]
    else:
        first = islice(value.items(), MOST_SHOWN)
        parts = [f"{shown(name)}: {shown(each, depth - 1)}" for name, each in first]
    if depth and len(value) > MOST_SHOWN:
        parts.append("…")
    text = ", ".join(parts)
    return f"[{text}]" if isinstance(value, list) else f"{{{text}}}"


def shortened(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"
