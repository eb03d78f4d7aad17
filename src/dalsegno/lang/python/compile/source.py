"""A function's syntax tree, with the line and column numbers of its file, and its form as plain data.

A stored program holds its fragments as plain data, so that any later compiler can read them. A node is ``[class,
position, field, …]``, a list of nodes ``["", …]``, a constant that JSON lacks ``{tag: text}``. Fields are in the order
of their class; newer Pythons only append to them, and a missing field gets its empty value.
"""

from __future__ import annotations

import ast
import base64
import inspect
import math
import re
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeAlias

from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.expressions.syntax.lexer import is_unicode
from dalsegno.lang.python.errors import Problem, UnsupportedPython
from dalsegno.lang.runtime.limits import MAX_SOURCE

FunctionNode: TypeAlias = ast.AsyncFunctionDef | ast.FunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    """The text of one function, decorators included, as it is in its file."""

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
            "its source text cannot be read. A workflow is compiled from its source, so it must be in a .py file "
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


def parse_function(source: Source, name: str) -> FunctionNode:
    """Return the function's definition.

    An indented one is parsed inside a block: dedenting would change its string literals.
    """
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
    return _with_request_loops(found) if _ASYNC_FOR.search(source.text) else found


_ASYNC_FOR = re.compile(r"\basync\s+for\b")


def _with_request_loops(function: FunctionNode) -> FunctionNode:
    try:
        changed: FunctionNode = _RequestLoops().visit(function)
    except RecursionError:  # nested too deep: what compiles it says so
        return function
    return changed


class _RequestLoops(ast.NodeTransformer):
    """Turns ``async for x in requests(…):`` into an endless loop that begins with ``x = await requests(…).next()``."""

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        self.generic_visit(node)
        if not _is_call_of_requests(node.iter):
            return node
        place = node.iter
        following = ast.copy_location(ast.Attribute(node.iter, "next", ast.Load()), place)
        awaited = ast.Await(ast.copy_location(ast.Call(following, [], []), place))
        taken = ast.Assign([node.target], ast.copy_location(awaited, place))
        always = ast.copy_location(ast.Constant(True), place)
        body = [ast.copy_location(taken, place), *node.body]
        return ast.copy_location(ast.While(always, body, node.orelse), node)


def _is_call_of_requests(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    named = node.func
    return (named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")) == "requests"


Packed: TypeAlias = Any

_MAX_PLAIN_INT = 2**53
_POSITION = ("lineno", "col_offset", "end_lineno", "end_col_offset")


def pack(value: Any, *, positions: bool = True) -> Packed:
    """Convert a tree to plain data. Without positions, equal code packs equally wherever it is."""
    if isinstance(value, ast.AST):
        place = _position(value) if positions else 0
        fields = [pack(getattr(value, name, None), positions=positions) for name in value._fields]
        while fields and fields[-1] in (None, [""]):
            fields.pop()
        return [type(value).__name__, place, *fields]
    if isinstance(value, list):
        return ["", *[pack(item, positions=positions) for item in value]]
    return _pack_constant(value)


def _position(node: ast.AST) -> Packed:
    if not hasattr(node, "lineno"):
        return 0
    return [getattr(node, name) for name in _POSITION]


def _pack_constant(value: Any) -> Packed:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return (
            value
            if value.isascii() or is_unicode(value)
            else {"s": _text(value.encode("utf-8", "surrogatepass"))}
        )
    if isinstance(value, int):
        return value if abs(value) < _MAX_PLAIN_INT else {"i": hex(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"f": repr(value)}
    if isinstance(value, bytes):
        return {"b": _text(value)}
    if isinstance(value, complex):
        return {"c": repr(value)}
    return {"e": ""}  # the only other constant of the grammar: an ellipsis


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def unpack(packed: Packed) -> Any:
    """Rebuild the tree. Raise `SnapshotError` for data that `pack` cannot have written."""
    if isinstance(packed, list):
        if packed and packed[0] == "":
            return [unpack(item) for item in packed[1:]]
        return _unpack_node(packed)
    if isinstance(packed, dict):
        return _unpack_constant(packed)
    return packed


def _unpack_node(packed: list[Any]) -> ast.AST:
    kind = getattr(ast, packed[0], None) if packed and isinstance(packed[0], str) else None
    if not (isinstance(kind, type) and issubclass(kind, ast.AST)) or len(packed) < 2:
        raise SnapshotError("the stored program's syntax tree is damaged, or was written by a newer Python")
    stored = packed[2:]
    fields: dict[str, Any] = {}
    for index, name in enumerate(kind._fields):
        missing: list[ast.AST] | None = [] if name in _LIST_FIELDS else None
        fields[name] = unpack(stored[index]) if index < len(stored) else missing
    node = kind(**fields)
    if isinstance(packed[1], list):
        for name, number in zip(_POSITION, packed[1], strict=False):
            setattr(node, name, number)
    return node


# An omitted field of these names was an empty list. Where such a name is a single node, it is never omitted.
_LIST_FIELDS = frozenset(
    (
        "args",
        "body",
        "cases",
        "comparators",
        "decorator_list",
        "defaults",
        "elts",
        "finalbody",
        "generators",
        "handlers",
        "ifs",
        "items",
        "keys",
        "keywords",
        "kw_defaults",
        "kwd_attrs",
        "kwd_patterns",
        "kwonlyargs",
        "names",
        "ops",
        "orelse",
        "patterns",
        "posonlyargs",
        "targets",
        "type_ignores",
        "type_params",
        "values",
    )
)


def _unpack_constant(packed: dict[str, Any]) -> Any:
    [(tag, text)] = packed.items() if len(packed) == 1 else [("", "")]
    match tag:
        case "s":
            return base64.b64decode(text).decode("utf-8", "surrogatepass")
        case "i":
            return int(text, 16)
        case "f":
            return float(text)
        case "b":
            return base64.b64decode(text)
        case "c":
            return complex(text)
        case "e":
            return ...
    raise SnapshotError("the stored program's syntax tree holds an unknown kind of constant")
