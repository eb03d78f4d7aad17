"""Fragments: await-free pieces of a workflow, collected in one syntax tree that Python compiles.

Each fragment is a function nested in a wrapper that owns all variables of the workflow function::

    def @wrapper():
        order = total = None
        def @0(@s0):
            nonlocal total
            return total + @s0

The workflow's variables are therefore free variables of the fragment. A function created from its code object and the
cells of a frame reads and writes them like a nested function of Python. ``@s0`` … are operands from the machine's
stack. Positions are those of the user's file, so tracebacks show the user's lines.
Each function is compiled by Python once, and the code objects are cached for the life of the process.
"""

from __future__ import annotations
import __future__

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, TypeGuard

import msgspec

from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.python.code import FunctionCode
from dalsegno.lang.python.compile.scopes import names_in
from dalsegno.lang.python.compile.source import unpack

WRAPPER = "@wrapper"
TICK = "@tick"


def operand(number: int) -> str:
    return f"@s{number}"


class FragmentWriter:
    """Collects the fragments of one workflow function."""

    def __init__(self, variables: Sequence[str], line: int) -> None:
        self._variables = list(variables)
        self._line = line
        self._fragments: list[ast.stmt] = []

    def add(self, body: list[ast.stmt], operands: int, line: int) -> int:
        """Add a fragment and return its number."""
        bound = sorted(names_in(body).bound & set(self._variables))
        declared: list[ast.stmt] = [ast.Nonlocal(bound)] if bound else []
        number = len(self._fragments)
        arguments = _positional([operand(index) for index in range(operands)])
        self._fragments.append(
            _placed(function_definition(f"@{number}", arguments, [*declared, *body]), line)
        )
        return number

    def module(self) -> ast.Module:
        body = list(self._fragments)
        if self._variables:
            targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in self._variables]
            body.insert(0, ast.Assign(targets, ast.Constant(None)))
        wrapper = function_definition(WRAPPER, _positional([]), body or [ast.Pass()])
        return ast.Module([_placed(wrapper, self._line)], [])


def function_definition(name: str, arguments: ast.arguments, body: list[ast.stmt]) -> ast.FunctionDef:
    """Create a definition with all fields that newer versions of Python require, such as empty type parameters."""
    function = ast.FunctionDef(name, arguments, body, [], None, None)
    if "type_params" in ast.FunctionDef._fields:
        setattr(function, "type_params", [])  # noqa: B010 - not known to older Pythons
    return function


def _positional(names: list[str]) -> ast.arguments:
    return ast.arguments(
        posonlyargs=[], args=[ast.arg(name) for name in names], kwonlyargs=[], kw_defaults=[], defaults=[]
    )


def _placed(node: ast.stmt, line: int) -> ast.stmt:
    """Set the position of generated nodes; the user's nodes keep theirs."""
    node.lineno = node.end_lineno = line
    node.col_offset = node.end_col_offset = 0
    return ast.fix_missing_locations(node)


def as_native(statement: ast.stmt) -> ast.stmt:
    """Convert a statement of the user to a statement of a fragment, in place."""
    changed = _NativeForm().visit(statement)
    return changed if isinstance(changed, ast.stmt) else statement


class _NativeForm(ast.NodeTransformer):
    """Converts a workflow's statements to those of a nested function.

    ``return x`` becomes ``return (x,)``, so that the machine can distinguish it from the end of the body. Loops count
    against the machine's limit by ``@tick()``. ``nonlocal`` and annotations of variables are removed: the fragment
    declares its own.
    """

    def __init__(self, *, nested: bool = False) -> None:
        self._nested = nested

    def visit(self, node: ast.AST) -> ast.AST:
        match node:
            case ast.FunctionDef() | ast.Lambda():
                return self._function(node)
            case ast.For() | ast.While():
                self.generic_visit(node)
                return _ticking(node)
            case ast.Return(value=value) if not self._nested:
                item = value or ast.copy_location(ast.Constant(None), node)
                result = ast.copy_location(ast.Tuple([item], ast.Load()), item)
                return ast.copy_location(ast.Return(result), node)
            case ast.Nonlocal() if not self._nested:
                return ast.copy_location(ast.Pass(), node)
            case ast.AnnAssign(target=ast.Name()) if not self._nested:
                return _without_annotation(node)
        return self.generic_visit(node)

    def _function(self, node: ast.FunctionDef | ast.Lambda) -> ast.AST:
        inner = _NativeForm(nested=True)
        if isinstance(node, ast.FunctionDef):
            node.body = [inner.visit(statement) for statement in node.body]  # type: ignore[misc]
        return node


def _ticking(loop: ast.For | ast.While) -> ast.AST:
    tick = ast.Expr(ast.Call(ast.Name(TICK, ast.Load()), [], []))
    loop.body.insert(0, ast.fix_missing_locations(ast.copy_location(tick, loop)))
    return loop


def _without_annotation(node: ast.AnnAssign) -> ast.AST:
    if node.value is None:
        return ast.copy_location(ast.Pass(), node)
    return ast.copy_location(ast.Assign([node.target], node.value), node)


def mentions_loop(function: ast.AsyncFunctionDef) -> bool:
    return any(isinstance(node, ast.For | ast.While) for node in ast.walk(function))


CodePath = tuple[int, ...]
"""The path to a nested function's code: the fragment, then the index of the function in it, and so on inwards."""

_INLINED = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>"))


@dataclass(frozen=True, slots=True)
class Natives:
    """The fragments of one function, and the nested functions and lambdas inside them."""

    fragments: tuple[CodeType, ...]
    nested: dict[CodePath, CodeType]
    paths: dict[int, CodePath]
    """By the identity of the code object: equal code at two places is two functions."""


def natives_of(code: FunctionCode, file: str, futures: tuple[str, ...]) -> Natives:
    flags = sum(
        getattr(__future__, name).compiler_flag for name in futures if name in __future__.all_feature_names
    )
    return _compiled(msgspec.json.encode(code.syntax), file, code.name, code.qualname, flags)


def futures_of(code: CodeType) -> tuple[str, ...]:
    """Return the ``__future__`` features that the module of this code imports and that still have an effect."""
    return ("annotations",) if code.co_flags & __future__.annotations.compiler_flag else ()


@lru_cache(maxsize=512)
def _compiled(syntax: bytes, file: str, name: str, qualname: str, flags: int) -> Natives:
    try:
        module = compile(_tree(syntax), file, "exec", flags=flags, dont_inherit=True)
        fragments = _fragments(module, name, qualname)
    except (ValueError, TypeError, SyntaxError, LookupError, RecursionError) as error:
        raise SnapshotError(
            f"the fragments of the stored function '{name}' cannot be compiled: {error}"
        ) from error
    nested: dict[CodePath, CodeType] = {}
    for number, fragment in enumerate(fragments):
        _find_nested(fragment, (number,), nested)
    return Natives(fragments, nested, {id(code): path for path, code in nested.items()})


def _fragments(module: CodeType, name: str, qualname: str) -> tuple[CodeType, ...]:
    """Return the fragments in the order of their numbers, which are their names."""
    found = {int(code.co_name[1:]): code for code in _inner_code(_inner_code(module)[0])}
    return tuple(_renamed(found[number], name, qualname) for number in range(len(found)))


def _tree(syntax: bytes) -> ast.Module:
    tree = unpack(msgspec.json.decode(syntax))
    if not isinstance(tree, ast.Module) or getattr(tree.body[0], "name", "") != WRAPPER:
        raise SnapshotError("the stored program's fragments are damaged")
    return tree


def _inner_code(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _renamed(code: CodeType, name: str, qualname: str) -> CodeType:
    """Rename the code, so that tracebacks and error messages show the user's names."""
    constants = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = constant.co_name.removeprefix("@")
            constants.append(_renamed(constant, inner, f"{qualname}.<locals>.{inner}"))
        else:
            constants.append(constant)
    return code.replace(co_name=name, co_qualname=qualname, co_consts=tuple(constants))


def _find_nested(code: CodeType, path: CodePath, found: dict[CodePath, CodeType]) -> None:
    """Find nested functions.

    Comprehensions are searched but not counted: newer Pythons have no code objects for them.
    """
    for ordinal, inner in enumerate(_functions_in(code)):
        place = (*path, ordinal)
        found[place] = inner
        _find_nested(inner, place, found)


def makes_functions(maker: Any) -> TypeGuard[FunctionType]:
    """Return whether functions created by it may be stored. Those of the standard library and this package may not."""
    root = str(getattr(maker, "__module__", "")).partition(".")[0]
    return isinstance(maker, FunctionType) and root not in sys.stdlib_module_names and root != "dalsegno"


def code_path(outer: CodeType, inner: CodeType) -> CodePath | None:
    """Return the path from a function's code to that of a function it creates."""
    found: dict[CodePath, CodeType] = {}
    _find_nested(outer, (), found)
    return next((path for path, code in found.items() if code is inner), None)


def nested_code(maker: FunctionType, path: str) -> CodeType | None:
    """Return the code of a function that another one creates, or None."""
    found: dict[CodePath, CodeType] = {}
    _find_nested(maker.__code__, (), found)
    return found.get(tuple(int(part) for part in path.split(".") if part.isdigit()))


def _functions_in(code: CodeType) -> Iterator[CodeType]:
    for inner in _inner_code(code):
        if inner.co_name in _INLINED:
            yield from _functions_in(inner)
        else:
            yield inner
