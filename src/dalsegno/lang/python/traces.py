"""Tracebacks of exceptions as the user sees them: files and lines of user code, without frames of this package.

A traceback is lost with its process. The path of an exception is therefore kept on the exception itself, as plain data
under a key of its ``__dict__``, and is part of the snapshot.
"""

from __future__ import annotations

import linecache
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from dalsegno.lang.python.compile.source import Source
from dalsegno.lang.python.errors import TaskError
from dalsegno.lang.runtime.effects import ErrorValue

Entry: TypeAlias = tuple[str, str, int]
"""Function, file, line."""

TRACE = "__dalsegno_trace__"
RECORD = "__dalsegno_record__"
"""The key under which an exception restored from a record keeps that record, so that re-raising it loses nothing."""
_RAISED_IN_TASK = "The above exception was raised in a task, which was awaited here:"
_CAUSE = "The above exception was the direct cause of the following exception:"
_CONTEXT = "During handling of the above exception, another exception occurred:"
_OURS = str(Path(__file__).parent)
_MOST_ENTRIES = 100
_MOST_TEXT = 16_384


def strip(error: BaseException) -> None:
    """Remove this package's frames from the front of the traceback."""
    traceback = error.__traceback__
    while traceback is not None and _is_ours(traceback):
        traceback = traceback.tb_next
    error.__traceback__ = traceback


def _is_ours(traceback: TracebackType) -> bool:
    return traceback.tb_frame.f_code.co_filename.startswith(_OURS)


def remember(error: BaseException, place: Entry) -> None:
    """Record where the exception was raised, unless that is recorded already.

    ``place`` is used if the traceback holds no user code.
    """
    if TRACE in error.__dict__:
        return
    entries: list[Entry] = []
    traceback = error.__traceback__
    while traceback is not None:
        if not _is_ours(traceback):
            code = traceback.tb_frame.f_code
            entries.insert(0, (code.co_name, code.co_filename, traceback.tb_lineno))
        traceback = traceback.tb_next
    error.__dict__[TRACE] = entries[:_MOST_ENTRIES] or [place]


def passed(error: BaseException, place: Entry) -> None:
    """Record that the exception propagated into the caller."""
    entries = error.__dict__.get(TRACE, [])
    if len(entries) < _MOST_ENTRIES and (not entries or entries[-1] != place):
        error.__dict__[TRACE] = [*entries, place]


def trace_of(error: BaseException) -> list[Entry]:
    """Return the trace, innermost first."""
    found: list[Entry] = error.__dict__.get(TRACE, [])
    return found


def stack_of(error: BaseException) -> tuple[str, ...]:
    return tuple(f"{name} ({file}:{line})" for name, file, line in trace_of(error))


def followed(error: BaseException) -> BaseException | None:
    """Return the exception that is shown before this one: its cause, or the one that was being handled."""
    if error.__cause__ is not None or error.__suppress_context__:
        return error.__cause__
    return error.__context__


def formatted(error: BaseException, source: Source) -> str:
    """Format the exception as Python prints it, causes first."""
    parts: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        parts.insert(0, _single(current, source))
        earlier = followed(current)
        if earlier is not None:
            parts.insert(0, _CAUSE if current.__cause__ is not None else _CONTEXT)
        current = earlier
    return "\n\n".join(parts)[-_MOST_TEXT:]


def record_of(error: BaseException) -> ErrorValue | None:
    """Return the record of a task's or child's exception; None if the workflow itself raised it."""
    if isinstance(error, TaskError):
        return error.error
    found = error.__dict__.get(RECORD)
    return found if isinstance(found, ErrorValue) else None


def _single(error: BaseException, source: Source) -> str:
    record = record_of(error)
    there = record.traceback if record is not None else None
    lines = [there, "", _RAISED_IN_TASK, ""] if there else []
    lines.append("Traceback (most recent call last):")
    for name, file, line in reversed(trace_of(error)):
        lines.append(f'  File "{file}", line {line}, in {name}')
        text = (source.line(line) if file == source.file else "") or linecache.getline(file, line)
        if text.strip():
            lines.append(f"    {text.strip()}")
    kind = type(error)
    name = (
        kind.__qualname__
        if kind.__module__ in ("builtins", "__main__")
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    message = text_of(error)
    lines.append(f"{name}: {message}" if message else name)
    lines.extend(note for note in getattr(error, "__notes__", ()) if isinstance(note, str))
    return "\n".join(lines)


def text_of(error: BaseException) -> str:
    """Return ``str(error)``, which is user code and may fail itself."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - user code
        return f"<its text is not available: {type(failure).__name__}>"
