"""What can go wrong with an expression: before it runs (`ExpressionError`) and while it runs (`ExpressionFailed`).

Both know their place in the source. `ScriptThrow` is internal: builtins and operators raise it without knowing
where they stand; the machine adds the place.
"""

from __future__ import annotations

from dalsegno.errors import UsageError

EXCERPT_WIDTH = 100
MAX_MESSAGE = 1_000
"""Characters of an error's message, which may quote values of any length."""


def line_and_column(source: str, offset: int) -> tuple[int, int]:
    """1-based line and column of an offset."""
    offset = max(0, min(offset, len(source)))
    line_start = source.rfind("\n", 0, offset) + 1
    return source.count("\n", 0, offset) + 1, offset - line_start + 1


def caret_excerpt(source: str, line: int, column: int) -> str:
    """The source line with a caret under the column; long lines are cut around it."""
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
    """The source of a script is no program; says what was found, what was expected and what to write."""

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

    # The tree's `code` belongs to a class; a script's error has one per instance, under the same name.
    code: str  # type: ignore[misc]

    def __init__(self, code: str, message: str, source: str = "", column: int = 1, line: int = 1) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.source = source
        self.column = column
        self.line = line
        self.pointer = ""
        """JSON pointer of the parameter, where the expression was part of a document."""

    @classmethod
    def at(cls, code: str, message: str, source: str, offset: int) -> ExpressionFailed:
        line, column = line_and_column(source, offset)
        return cls(code, message, source, column, line)

    @property
    def excerpt(self) -> str:
        return caret_excerpt(self.source, self.line, self.column)


class ScriptThrow(Exception):
    """An error of the language on its way to the machine, which knows the place."""

    def __init__(self, code: str, message: str) -> None:
        if len(message) > MAX_MESSAGE:
            message = f"{message[:MAX_MESSAGE]}…"
        super().__init__(message)
        self.code = code
        self.message = message


def type_error(message: str) -> ScriptThrow:
    """Operators and assignments applied to the wrong kind of value."""
    return ScriptThrow("TypeError", message)


def wrong_argument(message: str) -> ScriptThrow:
    return ScriptThrow("WRONG_ARG_TYPE", message)


def limit_exceeded(message: str) -> ScriptThrow:
    """Not catchable by a script."""
    return ScriptThrow("LimitExceeded", message)
