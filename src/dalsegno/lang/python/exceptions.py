"""Conversion of exceptions to values and back: a task's failure at an ``await``, a workflow's failure outside.

An exception is recorded as the qualified names of its classes, its message, and the plain parts of its arguments and
attributes. A class is restored only if the workflow's code can name it or the task declared it. Otherwise the failure
is a `TaskError`, and ``except`` clauses match by the recorded names.
Arguments are recorded as JSON and restored with their types, such as bytes, tuples and the members of groups.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import msgspec

from dalsegno.errors import DalSegnoError, NotJson
from dalsegno.lang.python.allowed_names import Naming, dotted_name
from dalsegno.lang.python.errors import TaskError, cancelled_error
from dalsegno.lang.python.traces import RECORD, record_of, stack_of, text_of
from dalsegno.lang.python.values.typed_values import to_plain
from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.lang.runtime.promises import Group, Promise

TAG = "__dalsegno__"
"""The only key of an object that encodes a value without a JSON form: its kind and its content."""
MAX_NESTING = 50

_COLLECTIONS: tuple[Callable[[list[Any]], Any], ...] = (tuple, set, frozenset)
_BY_NAME = {kind.__name__: kind for kind in _COLLECTIONS}

Recorder = Callable[[BaseException], Any]
Reviver = Callable[[Any], BaseException]


def recorded(value: Any, exception: Recorder, depth: int = 0) -> Any:
    """Convert a value to JSON. ``exception`` converts the exceptions found inside. Raise NotJson for other values."""
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


def restored(value: Any, exception: Reviver) -> Any:
    """Restore the value that `recorded` was given. Values that it did not encode are returned as they are."""
    if isinstance(value, list | tuple):
        return [restored(item, exception) for item in value]
    if not isinstance(value, dict):
        return value
    match value.get(TAG):
        case ["bytes", str(text)] if len(value) == 1:
            return _decoded(text)
        case [str(name), [*items]] if len(value) == 1 and name in _BY_NAME:
            return _BY_NAME[name](restored(items, exception))
        case ["exception", record] if len(value) == 1:
            return exception(record)
    return {name: restored(item, exception) for name, item in value.items()}


def _decoded(text: str) -> bytes | str:
    """Decode base64. Text from which a secret was removed is no longer base64."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return text


_OF_PROMISE = re.compile(r"'(Promise|Group)'|, Promise found")
"""How messages of Python's TypeErrors name a promise or a group."""
_FORGOTTEN = "; is an await missing? Calls of tasks, gather(), first() and race() return promises"


def class_names(kind: type) -> tuple[str, ...]:
    """Return the class names along the MRO, most derived first, without ``object``."""
    return tuple(name for each in kind.__mro__[:-1] if (name := dotted_name(each)) is not None)


def error_value(error: BaseException, data: Any = None) -> ErrorValue:
    """Return an exception as an error value."""
    record = record_of(error)
    if record is not None:
        return ErrorValue(
            record.code,
            record.message,
            record.type,
            record.data,
            stack_of(error),
            record.classes,
            record.args,
            record.attributes,
            record.traceback,
        )
    kind = type(error)
    code = getattr(error, "code", None)
    return ErrorValue(
        code if isinstance(code, str) and code and not code.startswith("DS-") else kind.__name__,
        (text_of(error) or kind.__name__) + _forgotten_await(error),
        kind.__name__,
        data,
        stack_of(error),
        class_names(kind),
        recorded_arguments(error),
        plain_attributes(error) or None,
    )


def _forgotten_await(error: BaseException) -> str:
    """Return a hint at a missing ``await``: Python's message says only that a promise has the wrong type."""
    if isinstance(error, AttributeError):
        is_promise_misuse = isinstance(error.obj, Promise | Group)
    else:
        is_promise_misuse = isinstance(error, TypeError) and _OF_PROMISE.search(text_of(error)) is not None
    return _FORGOTTEN if is_promise_misuse else ""


def recorded_arguments(error: BaseException) -> tuple[Any, ...]:
    """Return all arguments or none: a class rebuilt from some of them would be wrong."""
    try:
        return tuple(recorded(list(arguments_of(error)), _recorded_member))
    except NotJson:
        return ()


def _recorded_member(error: BaseException) -> Any:
    return msgspec.to_builtins(error_value(error))


def plain_attributes(error: BaseException) -> dict[str, Any]:
    """Return the attributes of a user's exception that JSON can restore.

    Python's notes and this package's records begin with underscores and are excluded.
    """
    if isinstance(error, DalSegnoError):
        return {}
    return {
        name: value
        for name, value in error.__dict__.items()
        if not name.startswith("__") and _is_plain(value)
    }


def _is_plain(value: Any) -> bool:
    try:
        return bool(to_plain(value, "attribute") == value)
    except Exception:  # noqa: BLE001 - comparisons may be user code
        return False


def arguments_of(error: BaseException) -> tuple[Any, ...]:
    """Return the constructor's arguments. OSErrors keep their file names apart from ``args``."""
    if isinstance(error, OSError) and type(error).__reduce__ is OSError.__reduce__:
        found = error.__reduce__()
        return tuple(found[1])
    return error.args


def revive(error: ErrorValue, naming: Naming, declared: Iterable[type[BaseException]] = ()) -> BaseException:
    """Return the exception to raise at an ``await``."""
    kind = _class_of(error, naming, declared)
    if kind is None:
        return task_error(error, naming)
    found = _rebuilt(kind, error, naming)
    if isinstance(found, TaskError):
        return found
    found.__dict__.update(deepcopy(error.attributes or {}))
    found.__dict__[RECORD] = error
    return found


def _rebuilt(kind: type[BaseException], error: ErrorValue, naming: Naming) -> BaseException:
    """Rebuild an exception from its arguments or, if they are unknown, around its message.

    Some of Python's own classes build their message only from arguments: then the message is kept, and the class is
    known by name.
    """
    if error.args:
        return build(kind, tuple(restored(error.args, lambda record: _revived_member(record, naming))))
    if error.message in ("", kind.__name__):
        return build(kind, ())
    found = build(kind, (error.message,))
    if kind.__module__ == "builtins" and error.message not in text_of(found):
        return task_error(error, naming)
    return found


def _revived_member(record: Any, naming: Naming) -> BaseException:
    return revive(msgspec.convert(record, ErrorValue), naming)


def task_error(error: ErrorValue, naming: Naming) -> TaskError:
    """Create a `TaskError` that also derives from the nearest of the recorded classes that can be named here."""
    for name in error.classes[1:]:
        base = naming.find_class(name)
        if base is not None and issubclass(base, Exception):
            return _task_error_class(base)(error)
    return TaskError(error)


_task_error_classes: dict[type, type[TaskError]] = {}


def _task_error_class(base: type[Exception]) -> type[TaskError]:
    if issubclass(TaskError, base):
        return TaskError
    if base not in _task_error_classes:
        space = {"__module__": TaskError.__module__, "__init__": TaskError.__init__}
        try:
            made = type(TaskError.__qualname__, (TaskError, base), space)
            made(ErrorValue("", ""))
        except TypeError:  # some classes cannot be combined, or require arguments of their own
            made = TaskError
        _task_error_classes[base] = made
    return _task_error_classes[base]


_BY_CODE: dict[str, Callable[[], type[BaseException]]] = {
    "TimeoutError": lambda: TimeoutError,
    "CancelledError": cancelled_error,
}


def _class_of(
    error: ErrorValue, naming: Naming, declared: Iterable[type[BaseException]]
) -> type[BaseException] | None:
    if not error.classes:
        by_code = _BY_CODE.get(error.code)
        return by_code() if by_code is not None else None
    name = error.classes[0]
    for kind in declared:
        if dotted_name(kind) == name:
            return kind
    if name == dotted_name(cancelled_error()):
        return cancelled_error()
    kind_found = naming.find_class(name)
    return kind_found if kind_found is not None and issubclass(kind_found, BaseException) else None


def build(kind: type[BaseException], arguments: tuple[Any, ...]) -> BaseException:
    """Build an exception from its arguments; if the constructor requires others, bypass it."""
    try:
        made = kind(*arguments)
    except Exception:  # noqa: BLE001 - constructors are user code
        if issubclass(kind, BaseExceptionGroup):
            return _group(kind, arguments)
        made = kind.__new__(kind)
        made.args = arguments
    if not isinstance(made, OSError):  # OSErrors keep some of their arguments elsewhere
        made.args = arguments  # a constructor may have changed the message already
    return made


def _group(kind: type[BaseExceptionGroup[Any]], arguments: tuple[Any, ...]) -> BaseException:
    """Rebuild an exception group.

    Its members are not recorded; a group cannot be empty, so it gets one with its message.
    """
    message = str(arguments[0]) if arguments else kind.__name__
    return kind(message, [Exception(message)])


def matches(error: BaseException, wanted: Any) -> bool:
    """Return whether ``except wanted`` matches the exception."""
    if isinstance(wanted, tuple):
        return any([matches(error, each) for each in wanted])  # noqa: C419 - each one is checked to be a class
    if not (isinstance(wanted, type) and issubclass(wanted, BaseException)):
        raise TypeError("catching classes that do not inherit from BaseException is not allowed")
    if isinstance(error, wanted):
        return True
    return isinstance(error, TaskError) and dotted_name(wanted) in error.error.classes
