"""Conversion of a promise's outcome to the value of an ``await``: typed results, revived exceptions, joined groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dalsegno.lang.python.durable_calls import Durable
from dalsegno.lang.python.exceptions import revive
from dalsegno.lang.python.program import PythonProgram
from dalsegno.lang.python.values.decisions import decision_of
from dalsegno.lang.runtime.effects import Err, ErrorValue, Ok, asks_people
from dalsegno.lang.runtime.promises import AnyPromise, Group, Known, Promise, Settled, Verdict, leaves, settle


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
