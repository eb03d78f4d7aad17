"""Plain paths such as ``$fetch.body.users[0].name``, the most common expression: read and run without the parser.

They mean exactly the same as in the full compiler; tests compare the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import Any, TypeAlias

from dalsegno.lang.errors import ExpressionFailed
from dalsegno.lang.expressions.names import NODE_ROOT, RootNames
from dalsegno.lang.values.members import MISSING, absent, read_index, read_member

PathPart: TypeAlias = str | int

LINKS = re.compile(r"(?:\.[A-Za-z_][\w$]*|\[\d{1,9}\])*", re.ASCII)
_LINK = re.compile(r"\.([A-Za-z_][\w$]*)|\[(\d+)\]", re.ASCII)


def split_links(text: str) -> tuple[PathPart, ...]:
    """Split a text that `LINKS` matched into its parts."""
    if "[" not in text:
        return tuple(text.split(".")[1:])
    return tuple(name or int(index) for name, index in _LINK.findall(text))


def find_path(source: str, start: int, end: int, names: RootNames) -> tuple[str, int] | None:
    """Return root key and offset of the links if ``source[start:end]`` is a plain path, else None."""
    found = names.find(source, start + 1) if source.startswith("$", start) else None
    if found is None or found[0] == NODE_ROOT:
        return None
    match = LINKS.match(source, found[1], end)
    return found if match is not None and match.end() == end else None


def follow(
    value: Any,
    parts: tuple[PathPart, ...],
    may_skip: bool,
    lenient: bool,
    explain: Callable[[Any, int], Exception],
) -> Any:
    """Return the value at the end of the path; ``explain`` creates the error for a missing link at a position.

    ``may_skip``: a first part ``output`` that is not a real key means the value itself.
    """
    for position, part in enumerate(parts):
        if type(value) is dict and part in value:
            value = value[part]
            continue
        if position == 0 and may_skip and part == "output":
            continue
        found = read_member(value, part) if isinstance(part, str) else read_index(value, part)
        if found is MISSING:
            if lenient:
                return None
            raise explain(value, position)
        value = found
    return value


def link_offset(source: str, links: int, position: int) -> int:
    """Return the offset of the link at ``position``."""
    return list(islice(_LINK.finditer(source, links), position + 1))[-1].start()


def missing_link(source: str, start: int, links: int, position: int, value: Any) -> ExpressionFailed:
    """Return the error for the link at ``position`` of the path that starts at ``start``."""
    offset = link_offset(source, links, position)
    match = _LINK.match(source, offset)
    name = match.group(1) if match else None
    part = name or int(match.group(2) if match else 0)
    path = source[start : offset + 1 + len(name) if name else offset]
    thrown = absent(value, part, path)
    return ExpressionFailed.at(thrown.code, thrown.message, source, offset + bool(name))
