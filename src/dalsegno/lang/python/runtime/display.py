"""Variables as readable data: plain data as it is, other values as far as they can be shown."""

from __future__ import annotations

from typing import Any

from dalsegno.lang.python.values.typed_values import to_plain
from dalsegno.lang.runtime.promises import Group, Promise, Settled, in_words

_DEEPEST = 20
"""Levels shown of a value that is not plain data; below them a part is shown by its type."""


def shown(value: Any, depth: int = 0) -> Any:
    try:
        return to_plain(value, "value")
    except Exception:  # noqa: BLE001 - only for show, and it may run user code
        return _in_parts(value, depth)


def _in_parts(value: Any, depth: int) -> Any:
    kind = type(value)
    if isinstance(value, Promise | Group | Settled):
        return in_words(value)
    if depth < _DEEPEST and kind is dict:
        return _by_key(value, depth)
    if depth < _DEEPEST and kind in (list, tuple, set, frozenset):
        return [shown(item, depth + 1) for item in value]
    return repr(value) if kind is float else f"<{kind.__name__}>"


def _by_key(value: dict[Any, Any], depth: int) -> dict[str, Any]:
    """Convert keys to text, as JSON requires; other keys are shown as Python writes them."""
    found: dict[str, Any] = {}
    for key, item in value.items():
        name = key if isinstance(key, str) else _text(key)
        found[_text(key) if name in found else name] = shown(item, depth + 1)
    return found


def _text(key: Any) -> str:
    try:
        return repr(key)
    except Exception:  # noqa: BLE001 - user code
        return f"<{type(key).__name__}>"
