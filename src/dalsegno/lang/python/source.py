"""From a function object to its syntax tree, with the line and column numbers of its file."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from types import FunctionType

from dalsegno.lang.limits import MAX_SOURCE
from dalsegno.lang.python.errors import Problem, UnsupportedPython


@dataclass(frozen=True, slots=True)
class Source:
    """The text of one function, decorators included, as it stands in its file."""

    file: str
    first_line: int
    text: str

    def line(self, number: int) -> str:
        lines = self.text.split("\n")
        index = number - self.first_line
        return lines[index] if 0 <= index < len(lines) else ""

    def problem(self, message: str, node: ast.AST) -> Problem:
        line = getattr(node, "lineno", self.first_line)
        text = self.line(line)
        # Columns of syntax trees count bytes.
        column = len(text.encode()[: getattr(node, "col_offset", 0)].decode(errors="ignore")) + 1
        return Problem(message, self.file, line, column, text)


def source_of(function: FunctionType, name: str) -> Source:
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError, IndexError, SyntaxError) as error:
        message = (
            "its source text cannot be read. A workflow is compiled from its source, so it must stand in a .py file "
            "that Python can open: not in the interactive prompt, not in exec(), not in a zip file"
        )
        place = function.__code__
        raise UnsupportedPython(
            name, [Problem(message, place.co_filename, place.co_firstlineno, 1)]
        ) from error
    source = Source(function.__code__.co_filename, max(first, 1), "".join(lines))
    if len(source.text) > MAX_SOURCE:
        message = (
            f"its source is longer than {MAX_SOURCE:,} characters; move parts of it into tasks or functions"
        )
        raise UnsupportedPython(name, [Problem(message, source.file, source.first_line, 1)])
    return source


def parse_function(source: Source, name: str) -> ast.AsyncFunctionDef | ast.FunctionDef:
    """The function's definition. An indented one is parsed inside a block: dedenting would change its texts."""
    indented = source.text[:1] in (" ", "\t")
    text = "if True:\n" + source.text if indented else source.text
    try:
        module = ast.parse(text, source.file)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        message = (
            f"its source cannot be parsed on its own ({error}); let the definition start on a line of its own"
        )
        raise UnsupportedPython(name, [Problem(message, source.file, source.first_line, 1)]) from error
    ast.increment_lineno(module, source.first_line - (2 if indented else 1))
    body = module.body[0].body if indented and isinstance(module.body[0], ast.If) else module.body
    found = body[0] if body else None
    if not isinstance(found, ast.AsyncFunctionDef | ast.FunctionDef) or found.name != name:
        message = (
            "the file has changed since it was imported, or the function was made by a decorator; "
            "put the workflow's decorator directly above a plain 'async def' and import again"
        )
        raise UnsupportedPython(name, [Problem(message, source.file, source.first_line, 1)])
    return found
