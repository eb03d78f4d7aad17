"""Outcomes in the form that a script sees: the shapes of groups, and the error of an uncaught value.

For people, values are shown as JSON, with descriptive text for those without a JSON form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from typing import Any

from msgspec.structs import replace

from dalsegno.lang.errors import ScriptThrow
from dalsegno.lang.flow.snapshot.format import decoded
from dalsegno.lang.runtime.effects import Err, ErrorValue, Ok, Outcome
from dalsegno.lang.runtime.limits import MAX_NESTING
from dalsegno.lang.runtime.promises import AnyPromise, Group, Promise, Verdict, describe, in_words, shaped
from dalsegno.lang.values.kinds import (
    Builtin,
    Configured,
    FunctionValue,
    Host,
    Vacant,
    Value,
    kind_of,
    number_text,
)
from dalsegno.lang.values.to_text import to_text

MAX_MESSAGE = 2_000
"""Maximum length of a message made from a thrown value's text; the whole value is the error's data."""


def present(group: Group, verdict: Verdict) -> Verdict:
    """Give a settled group the shape that the function that created it promised."""
    outcome = verdict.outcome
    if group.kind == "all_settled" and isinstance(outcome, Ok):
        outcomes = outcome.value if group.keys is None else list(outcome.value.values())
        return Verdict(verdict.place, Ok(shaped(group, [_settled(item) for item in outcomes])))
    if verdict.winner is None or not group.shape:
        return verdict
    if group.shape == "kv":
        if isinstance(outcome, Err):
            return verdict
        key = verdict.winner if group.keys is None else group.keys[verdict.winner]
        return Verdict(verdict.place, Ok({"key": key, "value": outcome.value}), verdict.winner)
    return Verdict(verdict.place, Ok(_item(group, verdict.winner, outcome)), verdict.winner)


def _settled(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, Ok):
        return {"status": "fulfilled", "value": outcome.value}
    return {"status": "rejected", "reason": outcome.error}


def _item(group: Group, winner: int, outcome: Outcome) -> dict[str, Any]:
    """Return the result of ``Task.any`` and ``Task.race``: the item that decided, and its outcome."""
    item: dict[str, Any] = {"item_id": _id_of(group.items[winner])}
    if group.kind == "any":
        return item | {"result": outcome.value if isinstance(outcome, Ok) else None}
    if isinstance(outcome, Ok):
        return item | {"status": "completed", "result": outcome.value}
    return item | {"status": "failed", "error": outcome.error}


def _id_of(item: AnyPromise) -> str | None:
    return item.id if isinstance(item, Promise) else None


def with_stack(error: ErrorValue, stack: tuple[str, ...]) -> ErrorValue:
    """Append the script's frames to an error from outside that is thrown here."""
    return replace(error, stack=error.stack + stack)


def _as_data(value: Value) -> Any:
    """Convert a value to data; a promise becomes its id, as elsewhere in the language."""
    return shown(value, handle=lambda promise: promise.id)


def uncaught(host: Host, value: Value, stack: tuple[str, ...]) -> ErrorValue:
    """Return the error that an execution fails with."""
    if isinstance(value, ErrorValue):
        return value
    if isinstance(value, dict):
        code, message = value.get("code"), value.get("message")
        if isinstance(code, str) or isinstance(message, str):
            kind = value.get("type")
            return ErrorValue(
                code if isinstance(code, str) else "THROWN",
                message if isinstance(message, str) else str(code),
                kind if isinstance(kind, str) else None,
                _as_data(value.get("data")),
                stack,
            )
    try:
        message = to_text(value, host)[:MAX_MESSAGE]
    except ScriptThrow:
        message = f"a {kind_of(value)} was thrown"
    return ErrorValue("THROWN", message, data=_as_data(value), stack=stack)


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
