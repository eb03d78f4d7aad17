"""Arguments of exceptions as JSON, and back as what they were: bytes, tuples and the members of groups among them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from dalsegno.errors import NotJson
from dalsegno.lang.python.typed import to_plain

TAG = "__dalsegno__"
"""The only key of an object that stands for what JSON has no word for: its kind, and what it holds."""
MAX_NESTING = 50

_COLLECTIONS: tuple[Callable[[list[Any]], Any], ...] = (tuple, set, frozenset)
_BY_NAME = {kind.__name__: kind for kind in _COLLECTIONS}

Recorder = Callable[[BaseException], Any]
Reviver = Callable[[Any], BaseException]


def recorded(value: Any, exception: Recorder, depth: int = 0) -> Any:
    """``exception`` makes plain values of those that are found inside. Raises NotJson for what cannot be recorded."""
    if depth > MAX_NESTING:
        raise NotJson(f"args are nested deeper than {MAX_NESTING} levels, or contain themselves")

    def items() -> list[Any]:
        return [recorded(item, exception, depth + 1) for item in value]

    kind = type(value)
    if kind is list:
        return items()
    if kind in _COLLECTIONS:
        return {TAG: [kind.__name__, items()]}
    if kind is bytes:
        return {TAG: ["bytes", base64.b64encode(value).decode()]}
    if isinstance(value, BaseException):
        return {TAG: ["exception", exception(value)]}
    if kind is dict and TAG not in value and all(type(name) is str for name in value):
        return {name: recorded(item, exception, depth + 1) for name, item in value.items()}
    return to_plain(value, "args")


def brought_back(value: Any, exception: Reviver) -> Any:
    """What `recorded` was given. Values that it did not make come back as they are."""
    if isinstance(value, list | tuple):
        return [brought_back(item, exception) for item in value]
    if not isinstance(value, dict):
        return value
    match value.get(TAG):
        case ["bytes", str(text)] if len(value) == 1:
            return _decoded(text)
        case [str(name), [*items]] if len(value) == 1 and name in _BY_NAME:
            return _BY_NAME[name](brought_back(items, exception))
        case ["exception", record] if len(value) == 1:
            return exception(record)
    return {name: brought_back(item, exception) for name, item in value.items()}


def _decoded(text: str) -> bytes | str:
    """Where a secret was taken out of it, it is base64 no more."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return text
