"""Stored exceptions come back as what they were if the workflow can name their class, else as a `TaskError`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dalsegno.lang.effects import ErrorValue
from dalsegno.lang.python.errors import TaskError, cancelled_error
from dalsegno.lang.python.exceptions import build, task_error
from dalsegno.lang.python.naming import dotted_name
from dalsegno.lang.python.snapshot.stored import Row
from dalsegno.lang.python.traces import RECORD, TRACE

if TYPE_CHECKING:
    from dalsegno.lang.python.snapshot.reading import Reader

_CLASSES, _MESSAGE, _TRACE, _RECORD, _SUPPRESS, _ARGUMENTS, _STATE, _CAUSE, _CONTEXT = range(1, 10)


def exception_shell(reader: Reader, row: Row) -> BaseException:
    """Made from its arguments, because some exceptions look at them only when they are made."""
    classes = msgspec.json.decode(row[_CLASSES], type=tuple[str, ...])
    record = _record(row)
    kind = _class(reader, classes[0])
    if kind is None:
        kind_name = classes[0].rpartition(".")[2]
        error = record or ErrorValue(kind_name, row[_MESSAGE], kind_name, classes=classes)
        return task_error(error, reader.program.naming)
    return build(kind, tuple(reader.value(row[_ARGUMENTS])))


def _class(reader: Reader, name: str) -> type[BaseException] | None:
    if name == dotted_name(TaskError):
        return None
    if name == dotted_name(cancelled_error()):
        return cancelled_error()
    found = reader.program.naming.find_class(name)
    return found if found is not None and issubclass(found, BaseException) else None


def _record(row: Row) -> ErrorValue | None:
    return None if row[_RECORD] is None else msgspec.json.decode(row[_RECORD], type=ErrorValue)


def fill_exception(reader: Reader, made: BaseException, row: Row) -> None:
    state: dict[str, Any] = reader.value(row[_STATE]) or {}
    if not isinstance(made, TaskError):
        made.__dict__.update(state)
        record = _record(row)
        if record is not None:
            made.__dict__[RECORD] = record
    made.__dict__[TRACE] = msgspec.json.decode(row[_TRACE], type=list[tuple[str, str, int]])
    made.__cause__ = reader.value(row[_CAUSE])
    made.__context__ = reader.value(row[_CONTEXT])
    made.__suppress_context__ = row[_SUPPRESS]
