"""Exceptions of tasks as error values: recorded by class names, message, plain arguments and attributes, never
pickled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dalsegno.core.values import encode_value
from dalsegno.engine.steps.run_node import bounded_text, bounded_traceback, storable_failure
from dalsegno.errors import DalSegnoError, NotJson
from dalsegno.lang.python.environment import stored_name_of
from dalsegno.lang.python.exceptions import plain_attributes, recorded_arguments
from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.model.failure import NO_RETRY, Failure, RetryPolicy

LARGEST_DATA = 256 * 1024
"""Maximum bytes of an error's data, without its message."""

TASK_FAILED = "TASK_FAILED"
NODE_FAILED = "NODE_FAILED"


def error_value(failure: Failure, error: BaseException | None) -> ErrorValue:
    """Return the error that a script catches. Its code is the exception's own ``code`` if it has one."""
    code = TASK_FAILED if failure.code == NODE_FAILED else failure.code
    return ErrorValue(
        code,
        failure.message,
        failure.type,
        failure.details,
        classes=class_names(error),
        args=_plain_arguments(error),
        attributes=_attributes(error),
        traceback=failure.traceback,
    )


def class_names(error: BaseException | None) -> tuple[str, ...]:
    if error is None:
        return ()
    return tuple(
        f"{stored_name_of(one.__module__)}.{one.__qualname__}"
        for one in type(error).__mro__
        if issubclass(one, BaseException) and one is not BaseException
    )


def storable_error(error: ErrorValue) -> ErrorValue:
    """Return an error in a form and of a size that every store can hold."""
    return ErrorValue(
        bounded_text(error.code),
        bounded_text(error.message),
        None if error.type is None else bounded_text(error.type),
        _plain_data(error.data),
        tuple(map(bounded_text, error.stack)),
        tuple(map(bounded_text, error.classes)),
        _plain_data(error.args) or (),
        _plain_data(error.attributes),
        None if error.traceback is None else bounded_traceback(error.traceback),
    )


def _plain_data(data: Any) -> Any:
    """Return data in storable form; None if they are not JSON, or too large to be stored with every mention of the
    error. A traceback that quotes invalid Unicode is repaired.
    """
    if isinstance(data, dict) and isinstance(data.get("traceback"), str):
        data = {**data, "traceback": bounded_traceback(data["traceback"])}
    try:
        return data if len(encode_value(data, "the error's data")) <= LARGEST_DATA else None
    except NotJson:
        return None


def _plain_arguments(error: BaseException | None) -> tuple[Any, ...]:
    return () if error is None else tuple(_plain_data(list(recorded_arguments(error))) or ())


def _attributes(error: BaseException | None) -> dict[str, Any] | None:
    return None if error is None else _plain_data(plain_attributes(error)) or None


@dataclass(frozen=True, slots=True)
class Failed:
    """A failed attempt: the failure for the retry policy, the error for the script."""

    failure: Failure
    error: ErrorValue
    policy: RetryPolicy


def unstorable(error: DalSegnoError) -> Failed:
    """Return the failure of a task whose output cannot be stored; a retry would not help."""
    failure = storable_failure(error, None)
    return Failed(failure, error_value(failure, error), NO_RETRY)
