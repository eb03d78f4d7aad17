"""Exceptions as values and back: what a task's failure is at an ``await``, and what a workflow's failure is outside.

An exception is recorded as the qualified names of its classes, its message, and what is plain of its arguments and
attributes. A class comes back only if the workflow's code can name it or the task declared it; otherwise the failure is
a `TaskError`, and ``except`` clauses look at the recorded names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import msgspec

from dalsegno.errors import DalSegnoError, NotJson
from dalsegno.lang.effects import ErrorValue
from dalsegno.lang.promises import Group, Promise
from dalsegno.lang.python.errors import TaskError, cancelled_error
from dalsegno.lang.python.naming import Naming, dotted_name
from dalsegno.lang.python.recording import brought_back, recorded
from dalsegno.lang.python.traces import RECORD, record_of, stack_of, text_of
from dalsegno.lang.python.typed import to_plain

_OF_PROMISE = re.compile(r"'(Promise|Group)'|, Promise found")
"""How the messages of Python's own TypeErrors name a promise, or what ``gather`` and its siblings give."""
_FORGOTTEN = "; was an await forgotten? Calls of tasks, gather(), first() and race() give promises"


def class_names(kind: type) -> tuple[str, ...]:
    """Along the MRO, most derived first, without ``object``."""
    return tuple(name for each in kind.__mro__[:-1] if (name := dotted_name(each)) is not None)


def error_value(error: BaseException, data: Any = None) -> ErrorValue:
    """An exception as the outside sees it."""
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
    """Python knows only that a promise is not what the expression wants; its author forgot to await it."""
    if isinstance(error, AttributeError):
        unfit = isinstance(error.obj, Promise | Group)
    else:
        unfit = isinstance(error, TypeError) and _OF_PROMISE.search(text_of(error)) is not None
    return _FORGOTTEN if unfit else ""


def recorded_arguments(error: BaseException) -> tuple[Any, ...]:
    """All of them or none: a class rebuilt from half of them would be a lie."""
    try:
        return tuple(recorded(list(arguments_of(error)), _recorded_member))
    except NotJson:
        return ()


def _recorded_member(error: BaseException) -> Any:
    return msgspec.to_builtins(error_value(error))


def plain_attributes(error: BaseException) -> dict[str, Any]:
    """Those of a user's exception that come back from JSON as what they are. Python's notes and ours begin with
    underscores."""
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
    """What to call its class with. The errors of the operating system keep their file names apart from ``args``."""
    if isinstance(error, OSError) and type(error).__reduce__ is OSError.__reduce__:
        found = error.__reduce__()
        return tuple(found[1])
    return error.args


def revive(error: ErrorValue, naming: Naming, declared: Iterable[type[BaseException]] = ()) -> BaseException:
    """The exception to raise at an ``await``."""
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
    """From its arguments; where they are not known, around its message. Some of Python's own classes word theirs from
    arguments only: then the message is kept, and the class is known by name."""
    if error.args:
        return build(kind, tuple(brought_back(error.args, lambda record: _revived_member(record, naming))))
    if error.message in ("", kind.__name__):
        return build(kind, ())
    found = build(kind, (error.message,))
    if kind.__module__ == "builtins" and error.message not in text_of(found):
        return task_error(error, naming)
    return found


def _revived_member(record: Any, naming: Naming) -> BaseException:
    return revive(msgspec.convert(record, ErrorValue), naming)


def task_error(error: ErrorValue, naming: Naming) -> TaskError:
    """Below the nearest of its recorded classes that can be named here."""
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
        except TypeError:  # some classes cannot be combined, or want arguments of their own
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
    """An exception from its arguments; one whose constructor wants others is made around it."""
    try:
        made = kind(*arguments)
    except Exception:  # noqa: BLE001 - constructors are user code
        if issubclass(kind, BaseExceptionGroup):
            return _group(kind, arguments)
        made = kind.__new__(kind)
        made.args = arguments
    if not isinstance(made, OSError):  # those keep some of their arguments elsewhere
        made.args = arguments  # a constructor that words its message words it once
    return made


def _group(kind: type[BaseExceptionGroup[Any]], arguments: tuple[Any, ...]) -> BaseException:
    """What it held is not recorded; a group cannot be empty, so it holds one that says the same."""
    message = str(arguments[0]) if arguments else kind.__name__
    return kind(message, [Exception(message)])


def matches(error: BaseException, wanted: Any) -> bool:
    """What ``except wanted`` says of the exception."""
    if isinstance(wanted, tuple):
        return any([matches(error, each) for each in wanted])  # noqa: C419 - each one is checked to be a class
    if not (isinstance(wanted, type) and issubclass(wanted, BaseException)):
        raise TypeError("catching classes that do not inherit from BaseException is not allowed")
    if isinstance(error, wanted):
        return True
    return isinstance(error, TaskError) and dotted_name(wanted) in error.error.classes
