"""Values as readable data: JSON, with descriptive text for values without a JSON form."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from typing import Any

from dalsegno.lang.flow.snapshot.format import decoded
from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.lang.runtime.limits import MAX_NESTING
from dalsegno.lang.runtime.promises import Group, Promise, describe, in_words
from dalsegno.lang.values.kinds import Builtin, Configured, FunctionValue, Vacant, Value, number_text

MOST = 100_000
"""Maximum number of parts shown: a value can refer to itself in many places and would be endless."""


_TEXT_PART = 200
"""Characters of text that count as one part."""


def shown(
    value: Value, left: list[int] | None = None, depth: int = 0, handle: Callable[[Promise], str] = in_words
) -> Any:
    """Return the value as JSON.

    ``left`` is the number of parts that may still be shown; ``handle`` returns the text for a single promise.
    """
    left = [MOST] if left is None else left
    left[0] -= 1
    if type(value) is Vacant:
        value = decoded(value)
    if isinstance(value, ErrorValue):
        value = describe(value)
    if type(value) is str:
        return _shown_text(value, left)
    if not isinstance(value, list | dict):
        return handle(value) if type(value) is Promise else _word_for(value)
    if depth > MAX_NESTING or left[0] < 0:
        return "…"
    if isinstance(value, list):
        return [shown(item, left, depth + 1, handle) for item in _first(value, left)]
    return {key: shown(value[key], left, depth + 1, handle) for key in _first(value, left)}


def _shown_text(text: str, left: list[int]) -> str:
    """Return a text, or its beginning when too many parts were shown. A long text counts as many parts."""
    left[0] -= len(text) // _TEXT_PART
    return text if left[0] >= 0 or len(text) <= _TEXT_PART else f"{text[:_TEXT_PART]}…"


def _first(items: list[Value] | dict[str, Value], left: list[int]) -> list[Value]:
    return list(islice(items, max(0, left[0])))


def _word_for(value: Value) -> Any:
    match value:
        case Group():
            return in_words(value)
        case FunctionValue():
            return f"<function {value.code.name}>"
        case Builtin():
            return f"<function {value.name}>"
        case Configured():
            return f"<{value.namespace} with options>"
        case Vacant():
            return "<stored apart>"
        case float() if not math.isfinite(value):
            return number_text(value)
    return value
