"""Fragments: await-free pieces of a workflow, put into one syntax tree that Python itself will compile.

Each fragment is a function nested in a wrapper that owns all variables of the workflow function::

    def @wrapper():
        order = total = None
        def @0(@s0):
            nonlocal total
            return total + @s0

So the workflow's variables are the fragment's free variables, and a function made from its code object with the cells
of a frame reads and writes them exactly as a nested function of Python would. ``@s0`` … are operands from the machine's
stack. Positions are those of the user's file, so tracebacks show the user's lines.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from dalsegno.lang.python.scopes import names_in

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
        """The number of a new fragment."""
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
    """Complete for every version of Python: newer ones want to know that there are no type parameters."""
    function = ast.FunctionDef(name, arguments, body, [], None, None)
    if "type_params" in ast.FunctionDef._fields:
        setattr(function, "type_params", [])  # noqa: B010 - not known to older Pythons
    return function


def _positional(names: list[str]) -> ast.arguments:
    return ast.arguments(
        posonlyargs=[], args=[ast.arg(name) for name in names], kwonlyargs=[], kw_defaults=[], defaults=[]
    )


def _placed(node: ast.stmt, line: int) -> ast.stmt:
    """Gives a place to the nodes that were made here, and leaves the user's own alone."""
    node.lineno = node.end_lineno = line
    node.col_offset = node.end_col_offset = 0
    return ast.fix_missing_locations(node)


def as_native(statement: ast.stmt) -> ast.stmt:
    """A statement of the user as a statement of a fragment; changed in place."""
    changed = _NativeForm().visit(statement)
    return changed if isinstance(changed, ast.stmt) else statement


class _NativeForm(ast.NodeTransformer):
    """Changes to a workflow's statements that make them a nested function's.

    ``return x`` gives ``(x,)``, so that the machine can tell it from falling off the end. Loops count against the
    machine's limit by ``@tick()``. ``nonlocal`` and annotations of variables go: the fragment declares its own.
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
