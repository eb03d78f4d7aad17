"""How outcomes look to a script: the shapes of groups, and the error that an uncaught value becomes."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from dalsegno.lang.effects import Err, ErrorValue, Ok, Outcome
from dalsegno.lang.errors import ScriptThrow
from dalsegno.lang.flow.showing import shown
from dalsegno.lang.promises import AnyPromise, Group, Promise, Verdict, shaped
from dalsegno.lang.text import to_text
from dalsegno.lang.values import Host, Value, kind_of

MAX_MESSAGE = 2_000
"""Characters of a thrown value's text that become its message; the whole value is the error's data."""


def present(group: Group, verdict: Verdict) -> Verdict:
    """A settled group as the function that made it promised."""
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
    """``Task.any`` and ``Task.race``: which item it was, and how it went."""
    item: dict[str, Any] = {"item_id": _id_of(group.items[winner])}
    if group.kind == "any":
        return item | {"result": outcome.value if isinstance(outcome, Ok) else None}
    if isinstance(outcome, Ok):
        return item | {"status": "completed", "result": outcome.value}
    return item | {"status": "failed", "error": outcome.error}


def _id_of(item: AnyPromise) -> str | None:
    return item.id if isinstance(item, Promise) else None


def with_stack(error: ErrorValue, stack: tuple[str, ...]) -> ErrorValue:
    """An error from outside, thrown here: behind its own frames come the script's."""
    return replace(error, stack=error.stack + stack)


def _as_data(value: Value) -> Any:
    """As elsewhere in the language, a promise gives its id."""
    return shown(value, handle=lambda promise: promise.id)


def uncaught(host: Host, value: Value, stack: tuple[str, ...]) -> ErrorValue:
    """The error that an execution ends with."""
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
