"""Statements. Runs of them without ``await`` are one fragment; the others become control flow of the machine."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dalsegno.lang.python.code import Op
from dalsegno.lang.python.compile.assembler import Label
from dalsegno.lang.python.compile.control_flow import ExceptionFlow
from dalsegno.lang.python.compile.expressions import at, placeholder
from dalsegno.lang.python.compile.fragments import function_definition, operand
from dalsegno.lang.python.compile.operands import parts_of
from dalsegno.lang.python.compile.scopes import FUNCTIONS, has_await, names_of_function, parameter_names


@dataclass(slots=True)
class Statements(ExceptionFlow):
    """Compiles statements. The stack is unchanged afterwards."""

    add_function: Callable[[ast.AsyncFunctionDef], int] = field(kw_only=True)
    """Assigns a nested async function its number in the program."""
    dispatch: dict[type[ast.stmt], Callable[[Any], None]] = field(init=False)

    def __post_init__(self) -> None:
        self.dispatch = {
            ast.Expr: self._discarded,
            ast.Return: self._return,
            ast.Assign: self._assignment,
            ast.AnnAssign: self._annotated,
            ast.AugAssign: self._augmented,
            ast.Assert: self._assertion,
            ast.If: self.if_,
            ast.While: self.while_,
            ast.For: self.for_,
            ast.Match: self.match_,
            ast.Try: self.try_,
            ast.With: self.with_,
            ast.AsyncWith: self.with_,
            ast.AsyncFunctionDef: self._async_function,
            ast.Break: lambda _: self.leave_loop(again=False),
            ast.Continue: lambda _: self.leave_loop(again=True),
        }

    def body(self, statements: list[ast.stmt]) -> None:
        native: list[ast.stmt] = []
        for statement in statements:
            if is_native(statement):
                native.append(statement)
            else:
                self._natives(native)
                native = []
                self.line = statement.lineno
                self.dispatch.get(type(statement), self._split_statement)(statement)
        self._natives(native)

    def _natives(self, statements: list[ast.stmt]) -> None:
        statements = [statement for statement in statements if not _does_nothing(statement)]
        if not statements:
            return
        self.line = statements[0].lineno
        if not any(_returns(statement) for statement in statements):
            self.execute(statements)
            return
        on = Label()
        depth = self.depth
        self.execute(statements, op=Op.RUN)
        self.emit(Op.JUMP_IF_NONE, on)
        self.emit(Op.UNWRAP)
        self.leave_function()
        self.place(on, depth)

    # -- simple statements with an await ----------------------------------------------------------------------

    def _discarded(self, node: ast.Expr) -> None:
        self.expression(node.value)
        self.emit(Op.POP)

    def _return(self, node: ast.Return) -> None:
        self.expression(node.value or ast.copy_location(ast.Constant(None), node))
        self.leave_function()

    def _assignment(self, node: ast.Assign) -> None:
        self.expression(node.value)
        self.assign(*node.targets)

    def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.expression(node.value)
            self.assign(node.target)

    def _augmented(self, node: ast.AugAssign) -> None:
        """Read the old value before the right side is evaluated, as Python does."""
        match node.target:
            case ast.Name(id=name):
                self.load(name)
                target: ast.expr = node.target
            case ast.Attribute(value=owner, attr=attribute):
                self.expression(owner)
                self.emit(Op.COPY, 1)
                self.evaluate(
                    at_expression(ast.Attribute(placeholder(0, node), attribute, ast.Load()), node), 1
                )
                target = at_expression(ast.Attribute(placeholder(0, node), attribute, ast.Store()), node)
            case ast.Subscript(value=owner, slice=index) if not isinstance(index, ast.Slice | ast.Tuple):
                self.expression(owner)
                self.expression(index)
                self.emit(Op.COPY, 2)
                place = (placeholder(0, node), placeholder(1, node))
                self.evaluate(at_expression(ast.Subscript(*place, ast.Load()), node), 2)
                target = at_expression(ast.Subscript(*place, ast.Store()), node)
            case _:
                self._split_statement(node)
                return
        self.expression(node.value)
        self._augment(node, target)

    def _augment(self, node: ast.AugAssign, target: ast.expr) -> None:
        """Compile the operation. The stack holds the target's operands, the old value and the right side."""
        count = {ast.Name: 0, ast.Attribute: 1}.get(type(target), 2)
        old = ast.copy_location(ast.Name(operand(count), ast.Store()), node)
        update = at(ast.AugAssign(old, node.op, placeholder(count + 1, node)), node)
        store = at(ast.Assign([copy.deepcopy(target)], placeholder(count, node)), node)
        self.execute([update, store], count + 2)

    def _assertion(self, node: ast.Assert) -> None:
        held = Label()
        self.expression(node.test)
        self.emit(Op.JUMP_IF_TRUE, held)
        error = ast.Call(
            ast.Name("AssertionError", ast.Load()), [node.msg] if node.msg is not None else [], []
        )
        self.body([at(ast.Raise(at_expression(error, node), None), node)])
        self.place(held)

    def _split_statement(self, node: ast.stmt) -> None:
        """Compile ``raise``, ``del`` or a function's defaults: operands to the stack, the rest a fragment."""
        node = copy.deepcopy(node)
        count = self.operands(list(parts_of(node)))
        self.execute([node], count)

    # -- nested async functions -------------------------------------------------------------------------------

    def _async_function(self, node: ast.AsyncFunctionDef) -> None:
        """Bind the arguments with a native function of the same signature; the body runs on the machine."""
        binder = _binder(node)
        parts = list(parts_of(binder))
        count = self.operands(parts) if any(has_await(part.node) for part in parts) else 0
        self.test(
            [binder, at(ast.Return(ast.copy_location(ast.Name(binder.name, ast.Load()), node)), node)], count
        )
        shared = names_of_function(node).free & set(self.variables)
        self.emit(Op.FUNCTION, self.add_function(node)).reads = frozenset(shared)
        self.store(node.name)


def _binder(node: ast.AsyncFunctionDef) -> ast.FunctionDef:
    arguments = copy.deepcopy(node.args)
    for parameter in ast.walk(arguments):
        if isinstance(parameter, ast.arg):
            parameter.annotation = None
    names: list[ast.expr] = [ast.Name(name, ast.Load()) for name in parameter_names(arguments)]
    body: list[ast.stmt] = [ast.Return(ast.Tuple(names, ast.Load()))]
    binder = function_definition(f"@{node.name}", arguments, body)
    return ast.fix_missing_locations(ast.copy_location(binder, node))


def at_expression(node: ast.expr, place: ast.AST) -> ast.expr:
    return ast.fix_missing_locations(ast.copy_location(node, place))


def is_native(node: ast.stmt) -> bool:
    """Return whether the statement can be (part of) a fragment: it neither awaits nor jumps out of itself."""
    if isinstance(node, ast.Return) or has_await(node):
        return False
    return not (_jumps_out(node, in_loop=False) or _watches_names(node))


def _watches_names(node: ast.AST) -> bool:
    """Return whether the statement may catch a NameError.

    To Python, a fragment's unbound variables are free ones. Only the machine turns the error into one about a local
    variable, so the machine must catch it.
    """
    if isinstance(node, FUNCTIONS):
        return False
    if isinstance(node, ast.ExceptHandler) and node.type is not None:
        names = {each.id for each in ast.walk(node.type) if isinstance(each, ast.Name)}
        if names & {"NameError", "UnboundLocalError"}:
            return True
    return any(_watches_names(child) for child in ast.iter_child_nodes(node))


def _jumps_out(node: ast.AST, *, in_loop: bool) -> bool:
    match node:
        case ast.AsyncFunctionDef() | ast.AsyncWith():
            return True
        case ast.FunctionDef() | ast.Lambda():
            return False
        case ast.Break() | ast.Continue():
            return not in_loop
        case ast.For(body=body, orelse=orelse) | ast.While(body=body, orelse=orelse):
            return any(_jumps_out(child, in_loop=True) for child in body) or any(
                _jumps_out(child, in_loop=in_loop) for child in orelse
            )
    return any(_jumps_out(child, in_loop=in_loop) for child in ast.iter_child_nodes(node))


def _returns(node: ast.AST) -> bool:
    if isinstance(node, FUNCTIONS):
        return False
    return isinstance(node, ast.Return) or any(_returns(child) for child in ast.iter_child_nodes(node))


def _does_nothing(node: ast.stmt) -> bool:
    match node:
        case ast.Pass() | ast.Nonlocal() | ast.Expr(value=ast.Constant()):
            return True
        case ast.AnnAssign(target=ast.Name(), value=None):
            return True
    return False
