r"""Dotted paths into JSON values: ``user.addresses[0].city``, with ``\.`` for a dot that belongs to a key.

* Reading never fails; a missing place is null.
* Assigning copies the containers on the path and shares the rest, because values belong to other nodes' outputs.
"""

from __future__ import annotations

import re
from typing import Any

_SEGMENT = re.compile(r"\[(\d{1,9})\]|((?:\\.|[^.\[\]\\])+)")

Path = tuple[str | int, ...]


class PathError(ValueError):
    """The path is malformed, or does not apply to the value."""


def parse_path(text: str) -> Path:
    """Return the segments of a path. Only ``[0]`` gives an integer; ``.0`` is a key that also selects a list item."""
    segments: list[str | int] = []
    position = 0
    ends_with_dot = False
    while position < len(text):
        if segments and text[position] == ".":
            position += 1
            ends_with_dot = position == len(text)
        elif segments and text[position] != "[":
            break
        found = _SEGMENT.match(text, position)
        if found is None:
            break
        segments.append(int(found[1]) if found[1] else re.sub(r"\\(.)", r"\1", found[2]))
        position = found.end()
    if not segments or position < len(text) or ends_with_dot:
        raise PathError(f"is not a path: {text!r}; write it like 'user.name' or 'items[0].id'")
    return tuple(segments)


def read_path(value: Any, path: Path) -> Any:
    """Return the value at the path, or None."""
    for segment in path:
        if isinstance(value, dict):
            value = value.get(str(segment))
        elif isinstance(value, list):
            index = _index(segment)
            value = value[index] if index is not None and index < len(value) else None
        else:
            return None
    return value


def assign_path(target: Any, path: Path, value: Any) -> Any:
    """Return ``target`` with ``value`` at the path.

    Missing objects on the path are created, one item may be appended.
    """
    return _assign(target, path, 0, value)


def _assign(target: Any, path: Path, depth: int, value: Any) -> Any:
    if depth == len(path):
        return value
    segment = path[depth]
    if target is None:
        target = [] if isinstance(segment, int) else {}
    if isinstance(target, dict):
        key = str(segment)
        return {**target, key: _assign(target.get(key), path, depth + 1, value)}
    if isinstance(target, list):
        return _assign_item(target, path, depth, value)
    raise PathError(
        f"cannot set '{spell_path(path)}': '{spell_path(path[:depth])}' is not an object or a list"
    )


def _assign_item(target: list[Any], path: Path, depth: int, value: Any) -> list[Any]:
    index = _index(path[depth])
    if index is None or index > len(target):
        raise PathError(
            f"cannot set '{spell_path(path)}': '{spell_path(path[:depth]) or 'the target'}' is a list of "
            f"{len(target)} items and has no place '{path[depth]}'"
        )
    old = target[index] if index < len(target) else None
    return [*target[:index], _assign(old, path, depth + 1, value), *target[index + 1 :]]


def spell_path(path: Path) -> str:
    """Return the path in the spelling of documents."""
    text = "".join(f"[{part}]" if isinstance(part, int) else "." + part.replace(".", "\\.") for part in path)
    return text.removeprefix(".")


def _index(segment: str | int) -> int | None:
    if isinstance(segment, int):
        return segment
    return int(segment) if segment.isascii() and segment.isdigit() and len(segment) < 10 else None
