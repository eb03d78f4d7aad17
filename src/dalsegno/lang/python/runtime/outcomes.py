"""Conversion of a promise's outcome to the value of an ``await``: typed results, revived exceptions, joined groups.

Variables as readable data: plain data as it is, other values as far as they can be shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dalsegno.lang.python.durable_calls import Durable
from dalsegno.lang.python.exceptions import revive
from dalsegno.lang.python.program import PythonProgram
from dalsegno.lang.python.requests import received
from dalsegno.lang.python.values.decisions import decision_of
from dalsegno.lang.python.values.payload_types import payload_of
from dalsegno.lang.python.values.typed_values import to_plain
from dalsegno.lang.runtime.effects import Err, ErrorValue, Ok, asks_people
from dalsegno.lang.runtime.promises import (
    AnyPromise,
    Group,
    Known,
    Promise,
    Settled,
    Verdict,
    in_words,
    leaves,
    settle,
)
from dalsegno.model.machine import request_in


def value_of(promise: AnyPromise, verdict: Verdict, known: Known, program: PythonProgram) -> Any:
    """Return the value of the ``await``, or raise its exception."""
    if isinstance(promise, Settled):
        return promise.value
    if isinstance(promise, Promise):
        return _leaf(promise, verdict, program)
    if isinstance(verdict.outcome, Err):
        raise _group_failure(promise, verdict.outcome.error, known, program)
    if promise.kind in ("any", "race"):
        winner = verdict.winner or 0
        value = _item(promise, winner, known, program)
        return value if promise.keys is None else (promise.keys[winner], value)
    values = _settled if promise.kind == "all_settled" else _item
    return [values(promise, index, known, program) for index in range(len(promise.items))]


def _leaf(promise: Promise, verdict: Verdict, program: PythonProgram) -> Any:
    durable = program.durable(promise.kind, promise.name)
    if isinstance(verdict.outcome, Err):
        raise revive(verdict.outcome.error, program.naming, durable.raises if durable is not None else ())
    value = copied(verdict.outcome.value)
    if promise.kind == "signal" and promise.name is not None and request_in(promise.name) is not None:
        return received(value, promise, program.naming)
    if promise.type is not None:
        return payload_of(value, promise.name, promise.type, program.naming)
    if promise.name is not None and promise.kind == "task" and asks_people(promise.name):
        return decision_of(value, promise.name, program.naming)
    return durable.decode_result(value) if durable is not None else value


def _item(group: Group, index: int, known: Known, program: PythonProgram) -> Any:
    item = group.items[index]
    verdict = settle(item, known)
    return value_of(item, verdict if verdict is not None else Verdict(0, Ok(None)), known, program)


def _settled(group: Group, index: int, known: Known, program: PythonProgram) -> Any:
    """Return a settled item's value, or the exception that an await of the item would raise."""
    try:
        return _item(group, index, known, program)
    except BaseException as error:  # noqa: BLE001 - it becomes a value
        error.__traceback__ = None
        return error


def _group_failure(group: Group, error: ErrorValue, known: Known, program: PythonProgram) -> BaseException:
    if group.kind == "any":
        failures = [_settled(group, index, known, program) for index in range(len(group.items))]
        return BaseExceptionGroup(error.message, failures)
    declared = [kind for durable in _durables(group, program) for kind in durable.raises]
    return revive(error, program.naming, declared)


def _durables(group: Group, program: PythonProgram) -> Iterator[Durable[Any, Any]]:
    for kind, name in {(leaf.kind, leaf.name) for leaf in leaves(group)}:
        durable = program.durable(kind, name)
        if durable is not None:
            yield durable


def copied(value: Any) -> Any:
    """Copy JSON for the workflow, which may change its copy while the driver keeps the delivered value."""
    if type(value) is list:
        return [copied(item) for item in value]
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    return value


# -- readable data -------------------------------------------------------------------------------------------


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
