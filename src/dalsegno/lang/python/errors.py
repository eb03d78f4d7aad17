"""Errors of Python workflows: at definition, at run time, and when a workflow is stored.

    UsageError
    ├── UnsupportedPython      refused when the module is imported, with every problem of the function
    ├── OutsideWorkflow        a verb such as ``sleep()`` was called outside of a workflow
    └── NotStorable            a value alive at an ``await`` cannot be part of a snapshot

`TaskError` and `CancelledError` are exceptions *of workflows*: they are raised at an ``await`` and may be caught there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from dalsegno.errors import UsageError
from dalsegno.lang.runtime.effects import ErrorValue


@dataclass(frozen=True, slots=True)
class Problem:
    """One unsupported construct in a workflow: its position, what it is, and what to write instead."""

    message: str
    file: str
    line: int
    column: int
    text: str = ""
    """The source line."""

    @property
    def excerpt(self) -> str:
        """Return the source line with a caret under the column."""
        if not self.text.strip():
            return ""
        shown = self.text.rstrip("\n").replace("\t", " ")
        indent = len(shown) - len(shown.lstrip())
        return f"    {shown[indent:]}\n    {' ' * max(0, self.column - 1 - indent)}^"

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: " if self.file else ""
        return "\n".join(part for part in (place + self.message, self.excerpt) if part)


class UnsupportedPython(UsageError):
    """The function cannot be a workflow.

    `problems` holds all reasons; the attributes of the first are also on the error itself.
    """

    code = "DS-185"

    def __init__(self, name: str, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        self.message, self.file, self.line, self.column = first.message, first.file, first.line, first.column
        noun = "a problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        listing = "\n".join(str(problem) for problem in self.problems)
        super().__init__(f"'{name}' cannot be a workflow: {noun}\n{listing}")


class OutsideWorkflow(UsageError):
    """A verb of workflows was called while no workflow runs."""

    code = "DS-186"


class NotStorable(UsageError):
    """A variable or intermediate value that is alive at an ``await`` cannot be stored."""

    code = "DS-187"

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


class LimitReached(BaseException):
    """Internal: carries a limit violation through native code to the machine, past every ``except Exception``."""


class TaskError(Exception):
    """A task or child workflow failed with an exception whose class this workflow's module cannot name.

    The exception is also an instance of the nearest base class that the module can name, so ``except ValueError``
    catches it if the original was a ValueError. ``except SomeError`` also catches it if ``SomeError`` is among the
    recorded names.
    """

    def __init__(self, error: ErrorValue) -> None:
        BaseException.__init__(self, error.message)  # other bases may require other arguments
        self.error = error

    @property
    def code(self) -> str:
        return self.error.code

    @property
    def type(self) -> str:
        """Return the name of the exception's original class."""
        return self.error.type or self.error.code

    @property
    def message(self) -> str:
        return self.error.message

    @property
    def data(self) -> Any:
        return self.error.data

    def __str__(self) -> str:
        return self.message if self.type in self.message else f"{self.type}: {self.message}"


class CancelledError(BaseException):
    """Raised at an ``await`` when the execution is cancelled.

    If asyncio is loaded, ``asyncio.CancelledError`` is raised instead.
    """


def cancelled_error() -> type[BaseException]:
    """Return the class to raise on cancellation.

    It is ``asyncio.CancelledError`` if asyncio is loaded, because workflows commonly catch that class.
    """
    module = sys.modules.get("asyncio.exceptions")
    found = getattr(module, "CancelledError", CancelledError)
    return found if isinstance(found, type) and issubclass(found, BaseException) else CancelledError


NAME_MISSING = "NAME_MISSING"
"""Error code of a turn that cannot continue in this process because a name is missing. It is never stored."""


def missing_name(error: BaseException, missing: frozenset[str]) -> str | None:
    """Return the missing name that an exception is about."""
    if isinstance(error, NameError):
        return error.name if error.name in missing else None
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        return next((name for name in missing if name.partition(".")[2] == error.name), None)
    return None
