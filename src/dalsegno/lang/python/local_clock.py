"""Warns of workflows that measure their waits with the clock of the machine they run on.

Timers, ``timeout()`` and ``signal(…, timeout=…)`` run on the store's clock. The clock of the process may differ from
it, and a test that skips time does not move it. A loop that waits for a timer and asks the local clock whether the time
is over may then go round without end.

The analysis looks at one function and is simple on purpose. It warns of a comparison one side of which is a moment of
the local clock that was read after an ``await``: the call itself, a variable that holds it, or a sum or difference of
them. A time that is only logged, stored, passed on or formatted is nothing to warn of.
"""

from __future__ import annotations

import ast
import datetime as dt
import sys
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from dalsegno.errors import DalSegnoWarning
from dalsegno.lang.python.scopes import names_of_function
from dalsegno.lang.python.source import Source
from dalsegno.lang.python.surroundings import Surroundings

_READS = frozenset(("now", "utcnow", "today"))
"""Of ``datetime`` and classes below it."""
_COUNTERS = frozenset(("time", "time_ns", "monotonic", "monotonic_ns"))
"""Of the module ``time``, which is only recognised here and never asked."""
_SAME_MOMENT = frozenset(("astimezone", "replace", "timestamp", "total_seconds"))
"""Methods that give the same moment, or the same span, in another form."""
_MODULES = frozenset(("datetime", "time"))
_OTHER_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

MESSAGE = (
    "workflow '{name}' compares '{clock}' after an await. Timers run on the store's clock, which may differ from the "
    "local one: use now() of dalsegno, timeout() or race()"
)


def warn_of_local_clock(workflow: ast.AsyncFunctionDef, source: Source, surroundings: Surroundings) -> None:
    """A `DalSegnoWarning` at each comparison, once per process and line."""
    registry = surroundings.globals.setdefault("__warningregistry__", {})
    for function in [workflow, *_nested(workflow)]:
        for line, clock in _ClockReads(function, surroundings.known).compared():
            warnings.warn_explicit(
                MESSAGE.format(name=workflow.name, clock=clock),
                DalSegnoWarning,
                source.file,
                line,
                surroundings.module,
                registry,
            )


def _nested(workflow: ast.AsyncFunctionDef) -> list[ast.AsyncFunctionDef]:
    return [
        node for node in ast.walk(workflow) if isinstance(node, ast.AsyncFunctionDef) and node is not workflow
    ]


class _ClockReads:
    """The reads of the local clock in one function, and what becomes of them."""

    def __init__(self, function: ast.AsyncFunctionDef, known: Callable[[str], Any]) -> None:
        self._known = known
        self._nodes = list(_own_nodes(function))
        self._own: dict[str, Any] = dict.fromkeys(names_of_function(function).own)
        """Names that the function binds itself: imports that are known, else None."""
        self._own.update(_imports(self._nodes))
        self._first_await = min((_place(node) for node in self._nodes if _suspends(node)), default=None)
        self._repeated = {
            id(node)
            for loop in self._nodes
            if isinstance(loop, ast.For | ast.While) and any(_suspends(part) for part in ast.walk(loop))
            for node in ast.walk(loop)
        }
        self._held: dict[str, str] = {}
        """Variables that hold a moment read after an await, with the call it came from."""

    def compared(self) -> Iterator[tuple[int, str]]:
        """Lines of comparisons, each with the call that reads the clock."""
        if self._first_await is None:
            return
        self._follow_assignments()
        for node in self._nodes:
            if isinstance(node, ast.Compare):
                clocks = (self._clock_in(side) for side in (node.left, *node.comparators))
                if clock := next(filter(None, clocks), None):
                    yield node.lineno, clock

    def _follow_assignments(self) -> None:
        """A variable may be made of another one that is assigned further down, where a loop goes round."""
        before = -1
        while len(self._held) != before:
            before = len(self._held)
            for node in self._nodes:
                for name, value in _assigned(node):
                    if clock := self._clock_in(value):
                        self._held.setdefault(name, clock)

    def _clock_in(self, node: ast.expr) -> str:
        """The call that read the clock, if the value is such a moment or a span up to it."""
        match node:
            case ast.Name(id=name):
                return self._held.get(name, "")
            case ast.NamedExpr(value=value):
                return self._clock_in(value)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                return self._clock_in(left) or self._clock_in(right)
            case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in _SAME_MOMENT:
                return self._clock_in(value)
            case ast.Call(func=function) if self._is_after_await(node) and self._reads_clock(function):
                return f"{ast.unparse(function)}()"
        return ""

    def _is_after_await(self, node: ast.expr) -> bool:
        return id(node) in self._repeated or (
            self._first_await is not None and _place(node) > self._first_await
        )

    def _reads_clock(self, function: ast.expr) -> bool:
        value = self._value(function)
        holder, name = getattr(value, "__self__", None), getattr(value, "__name__", "")
        if isinstance(holder, type):
            return issubclass(holder, dt.datetime) and name in _READS
        return isinstance(holder, ModuleType) and holder.__name__ == "time" and name in _COUNTERS

    def _value(self, node: ast.expr) -> Any:
        """What a dotted name means. Only modules and classes are asked for attributes: that runs no code."""
        match node:
            case ast.Name(id=name):
                return self._own[name] if name in self._own else self._known(name)
            case ast.Attribute(value=holder, attr=name):
                value = self._value(holder)
                return getattr(value, name, None) if isinstance(value, ModuleType | type) else None
        return None


def _own_nodes(function: ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Everything in its body except for the functions inside, in the order of the text."""
    waiting: list[ast.AST] = list(reversed(function.body))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _OTHER_FUNCTIONS):
            waiting.extend(reversed(list(ast.iter_child_nodes(node))))


def _imports(nodes: list[ast.AST]) -> Iterator[tuple[str, Any]]:
    """Names that the function imports from the modules with clocks."""
    for node in nodes:
        match node:
            case ast.Import(names=names):
                for each in names:
                    if each.name in _MODULES:
                        yield each.asname or each.name, sys.modules.get(each.name)
            case ast.ImportFrom(module=str(module), names=names, level=0) if module in _MODULES:
                for each in names:
                    yield each.asname or each.name, getattr(sys.modules.get(module), each.name, None)


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=targets, value=value):
            yield from ((target.id, value) for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.NamedExpr(target=ast.Name(id=name), value=value):
            yield name, value


def _suspends(node: ast.AST) -> bool:
    return isinstance(node, ast.Await)


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
