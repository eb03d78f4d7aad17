"""Errors of expressions and scripts, and of stored machine states.

`ExpressionError` is raised before an expression runs, `ExpressionFailed` while it runs; both know their position in the
source. `ScriptThrow` is internal: builtins and operators raise it without a position, and the machine adds it.
Stacks in errors are frames as text, innermost first; of a deep recursion only the inner ones are kept.
`SnapshotError` covers stored machine states that cannot be read, whichever machine wrote them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from dalsegno.errors import OperatorError, UsageError

EXCERPT_WIDTH = 100
MAX_MESSAGE = 1_000
"""Maximum length of an error's message, which may quote values of any length."""


def line_and_column(source: str, offset: int) -> tuple[int, int]:
    """Return the 1-based line and column of an offset."""
    offset = max(0, min(offset, len(source)))
    line_start = source.rfind("\n", 0, offset) + 1
    return source.count("\n", 0, offset) + 1, offset - line_start + 1


def caret_excerpt(source: str, line: int, column: int) -> str:
    """Return the source line with a caret under the column; long lines are cut around it."""
    text = source.split("\n")[line - 1].rstrip("\r") if source else ""
    start = max(0, column - 1 - EXCERPT_WIDTH // 2)
    shown = text[start : start + EXCERPT_WIDTH].replace("\t", " ")
    return f"{shown}\n{' ' * (column - 1 - start)}^"


class ExpressionError(UsageError):
    """The source cannot be compiled: a syntax error, an unknown name, or nesting beyond the limit."""

    code = "DS-180"

    def __init__(self, message: str, source: str = "", column: int = 1, line: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.source = source
        self.column = column
        self.line = line

    @classmethod
    def at(cls, message: str, source: str, offset: int) -> ExpressionError:
        line, column = line_and_column(source, offset)
        return cls(message, source, column, line)

    @property
    def excerpt(self) -> str:
        return caret_excerpt(self.source, self.line, self.column)


class FlowSyntaxError(UsageError):
    """The source of a script is not a program. The message says what was found, what was expected and what to write."""

    code = "DS-182"

    def __init__(self, message: str, line: int = 1, column: int = 1, source: str = "") -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.message = message
        self.line = line
        self.column = column
        self.source = source

    @classmethod
    def at(cls, message: str, source: str, offset: int) -> FlowSyntaxError:
        return cls(message, *line_and_column(source, offset), source)

    @property
    def excerpt(self) -> str:
        return caret_excerpt(self.source, self.line, self.column)


class ExpressionFailed(UsageError):
    """Evaluation failed; ``code`` is the language's own error code (`TypeError`, `PROPERTY_NOT_FOUND`, …)."""

    # Other errors have one `code` per class; a script's error has one per instance, under the same name.
    code: str  # type: ignore[misc]

    def __init__(self, code: str, message: str, source: str = "", column: int = 1, line: int = 1) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.source = source
        self.column = column
        self.line = line
        self.pointer = ""
        """JSON pointer of the parameter, if the expression was part of a document."""

    @classmethod
    def at(cls, code: str, message: str, source: str, offset: int) -> ExpressionFailed:
        line, column = line_and_column(source, offset)
        return cls(code, message, source, column, line)

    @property
    def excerpt(self) -> str:
        return caret_excerpt(self.source, self.line, self.column)


class ScriptThrow(Exception):
    """An error of the language on its way to the machine, which knows the position."""

    def __init__(self, code: str, message: str) -> None:
        if len(message) > MAX_MESSAGE:
            message = f"{message[:MAX_MESSAGE]}…"
        super().__init__(message)
        self.code = code
        self.message = message


def type_error(message: str) -> ScriptThrow:
    """Return the error of an operator or assignment applied to the wrong kind of value."""
    return ScriptThrow("TypeError", message)


def wrong_argument(message: str) -> ScriptThrow:
    return ScriptThrow("WRONG_ARG_TYPE", message)


def limit_exceeded(message: str) -> ScriptThrow:
    """Return an error that a script cannot catch."""
    return ScriptThrow("LimitExceeded", message)


MOST_PLACES = 30
"""Maximum number of frames that an error names."""


def shortened(places: Iterable[str], depth: int) -> tuple[str, ...]:
    """Return the first of ``depth`` places, and the number of those left out; only these are read from the iterable."""
    shown = tuple(islice(places, MOST_PLACES))
    return shown if depth <= MOST_PLACES else (*shown, f"… and {depth - MOST_PLACES} more")


class SnapshotError(OperatorError):
    """A snapshot or a stored program is damaged, of another program, or of an unknown format."""

    code = "DS-270"


class NameMissing(SnapshotError):
    """A snapshot names something that the running program lacks, or that its code does not reach."""
