"""What a workflow may not contain. Everything is found in one go, each problem with what to write instead."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from dalsegno.lang.python.coroutines import (
    home_and_name,
    is_coroutine_function,
    joins_promises,
    makes_foreign_manager,
    no_manager,
    no_promise,
    not_a_task,
    promises_in,
)
from dalsegno.lang.python.errors import Problem
from dalsegno.lang.python.scopes import FunctionNode, awaits_inside, has_await, names_of_function
from dalsegno.lang.python.source import Source

_NO_FRAME = "name the variables you need: the workflow's variables are not in one frame"
_NO_TEXT = "code from text cannot see the workflow's variables: put it into a task or a module-level function"
_SCOPE_BUILTINS = {
    "locals": _NO_FRAME,
    "vars": _NO_FRAME,
    "dir": _NO_FRAME,
    "eval": _NO_TEXT,
    "exec": _NO_TEXT,
}
_REFUSED_WITH_ARGUMENTS = frozenset(("eval", "exec"))

_ASYNC_FOR = "let a task collect the items and return them as a list, then use an ordinary 'for'"

_STATEMENTS: dict[type[ast.AST], str] = {
    ast.ClassDef: "a class cannot be defined inside a workflow: define it at the top of the module",
    ast.Global: "'global' is not supported: a module's state does not survive the process. "
    "Keep the value in a variable of the workflow, or in a store that a task writes",
    ast.AsyncFor: f"'async for' is not supported: {_ASYNC_FOR}",
    ast.TryStar: "'except*' is not supported: use 'except'; gather() raises the first failure by itself, "
    "gather(…, return_exceptions=True) gives all of them",
}


_VERBS = "dalsegno.lang.python.verbs"
_FORGOTTEN = {
    (_VERBS, "sleep"): "nothing waits for this 'sleep()': write 'await sleep(…)'",
    ("asyncio.tasks", "sleep"): "nothing waits for this 'sleep()': write 'await asyncio.sleep(…)'",
    (_VERBS, "signal"): "nothing waits for this 'signal()': write 'await signal(…)'",
    (_VERBS, "approval"): "nothing waits for this 'approval()': write 'await approval(…)'",
    (_VERBS, "timeout"): "'timeout()' limits the awaits of a block: write 'with timeout(…):' around them",
}
"""Calls that mean nothing as statements of their own, by the module and name of the function."""


class Refusals:
    """Walks a workflow's definition. ``known`` gives the value of a global name, or None while the module lacks it."""

    def __init__(self, source: Source, known: Callable[[str], Any]) -> None:
        self._source = source
        self._known = known
        self._functions: list[FunctionNode] = []
        self._scopes: list[set[str]] = []
        self._async_names: list[set[str]] = []
        self.problems: list[Problem] = []

    def check(self, workflow: ast.AsyncFunctionDef) -> None:
        self._body(workflow)

    def refuse(self, node: ast.AST, message: str) -> None:
        self.problems.append(self._source.problem(message, node))

    def look(self, node: ast.AST) -> None:
        message = _STATEMENTS.get(type(node))
        if message is not None:
            self.refuse(node, message)
        special = _SPECIAL.get(type(node))
        if special is not None:
            special(self, node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            for child in ast.iter_child_nodes(node):
                self.look(child)

    def is_local(self, name: str) -> bool:
        return any(name in scope for scope in self._scopes)

    # -- nodes with rules of their own ------------------------------------------------------------------------

    def function(self, node: FunctionNode) -> None:
        if isinstance(node, ast.AsyncFunctionDef) and not self._in_async:
            self.refuse(
                node,
                f"the async function '{node.name}' stands inside a plain function: define it directly in the workflow, "
                "or make it a task",
            )
        decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
        if isinstance(node, ast.AsyncFunctionDef) and decorators:
            self.refuse(
                decorators[0],
                f"the decorator of the async function '{node.name}' is not supported: its body is run by the workflow "
                "itself, and what a decorator gives back could not be. Decorate a plain 'def', or write what the "
                "decorator does into the function",
            )
        for decorator in decorators:
            self.look(decorator)
        self.look(node.args)
        self._body(node)

    def _body(self, node: FunctionNode) -> None:
        self._functions.append(node)
        self._scopes.append(names_of_function(node).own)
        nested = {each.name for each in ast.walk(node) if isinstance(each, ast.AsyncFunctionDef)}
        self._async_names.append(nested - {getattr(node, "name", "")})
        for child in [node.body] if isinstance(node, ast.Lambda) else node.body:
            self.look(child)
        self._scopes.pop()
        self._async_names.pop()
        self._functions.pop()

    @property
    def _in_async(self) -> bool:
        return isinstance(self._functions[-1], ast.AsyncFunctionDef)

    def nonlocal_(self, node: ast.Nonlocal) -> None:
        for name in node.names:
            if not any(name in scope for scope in self._scopes[:-1]):
                self.refuse(
                    node,
                    f"'nonlocal {name}' would change a variable outside the workflow, which is not stored with it. "
                    "Keep the value in a variable of the workflow",
                )

    def yield_(self, node: ast.Yield | ast.YieldFrom) -> None:
        if self._in_async:
            self.refuse(node, "'yield' is not supported: collect the items in a list and return it")

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        if any(generator.is_async for generator in node.generators):
            self.refuse(node, f"'async for' in a comprehension is not supported: {_ASYNC_FOR}")
        elif isinstance(node, ast.GeneratorExp) and awaits_inside(node):
            self.refuse(
                node,
                "'await' inside a generator expression is not supported: write a list comprehension instead",
            )

    def handler(self, node: ast.ExceptHandler) -> None:
        if node.type is not None and has_await(node.type):
            self.refuse(node.type, "'await' in an 'except' clause is not supported: await before the 'try'")

    def call(self, node: ast.Call) -> None:
        if joins_promises(self._meant(node.func)):
            for promise in promises_in(node):
                self._joined(promise)
        if not isinstance(node.func, ast.Name) or self.is_local(node.func.id):
            return
        name = node.func.id
        if name == "super":
            self.refuse(node, "'super()' is not supported: a workflow is no method")
        elif name in _SCOPE_BUILTINS and (name in _REFUSED_WITH_ARGUMENTS or not node.args):
            self.refuse(node, f"'{name}()' is not supported in a workflow: {_SCOPE_BUILTINS[name]}")

    def _joined(self, node: ast.expr) -> None:
        """What stands where ``gather`` and its like need a promise."""
        match node:
            case ast.Call(func=ast.Name(id=name)) if self._is_nested(name):
                self.refuse(node, no_promise(name))
            case ast.Call(func=function) if is_coroutine_function(self._meant(function)):
                self.refuse(node, not_a_task(ast.unparse(function)))

    def _is_nested(self, name: str) -> bool:
        return any(name in names for names in self._async_names)

    def discarded(self, node: ast.Expr) -> None:
        """A nested async function that is called and forgotten never runs; a timer that is forgotten is for nothing.
        (A task that nobody awaits runs all the same.)"""
        match node.value:
            case ast.Call(func=ast.Name(id=name)) if self._is_nested(name):
                self.refuse(
                    node, f"'{name}' is an async function: nothing of it runs unless you 'await {name}(…)'"
                )
            case ast.Call(func=function) if is_coroutine_function(self._meant(function)):
                self.refuse(node, not_a_task(ast.unparse(function)))
            case ast.Call(func=function):
                instead = _FORGOTTEN.get(home_and_name(self._meant(function)))
                if instead is not None:
                    self.refuse(node, instead)

    def _meant(self, function: ast.expr) -> Any:
        """The object behind a global name, or behind an attribute of a module."""
        match function:
            case ast.Name(id=name) if not self.is_local(name):
                return self._known(name)
            case ast.Attribute(value=ast.Name(id=home), attr=name) if not self.is_local(home):
                module = self._known(home)
                return getattr(module, name, None) if inspect.ismodule(module) else None
        return None

    def await_(self, node: ast.Await) -> None:
        match node.value:
            case ast.Call(func=function) if is_coroutine_function(self._meant(function)):
                self.refuse(node, not_a_task(ast.unparse(function)))

    def async_with(self, node: ast.AsyncWith) -> None:
        for item in node.items:
            manager = item.context_expr
            called = isinstance(manager, ast.Call)
            meant = self._meant(manager.func if isinstance(manager, ast.Call) else manager)
            if makes_foreign_manager(meant, called=called):
                self.refuse(manager, no_manager(ast.unparse(manager)))


_SPECIAL: dict[type[ast.AST], Callable[[Refusals, Any], None]] = {
    ast.FunctionDef: Refusals.function,
    ast.AsyncFunctionDef: Refusals.function,
    ast.Lambda: Refusals.function,
    ast.Nonlocal: Refusals.nonlocal_,
    ast.Yield: Refusals.yield_,
    ast.YieldFrom: Refusals.yield_,
    ast.ListComp: Refusals.comprehension,
    ast.SetComp: Refusals.comprehension,
    ast.DictComp: Refusals.comprehension,
    ast.GeneratorExp: Refusals.comprehension,
    ast.ExceptHandler: Refusals.handler,
    ast.Call: Refusals.call,
    ast.Await: Refusals.await_,
    ast.AsyncWith: Refusals.async_with,
    ast.Expr: Refusals.discarded,
}
