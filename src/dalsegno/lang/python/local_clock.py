"""Warns about workflows that measure waiting time with the local clock of the process.

Timers, ``timeout()`` and ``signal(…, timeout=…)`` run on the store's clock. The clock of the process may differ from
it, and a test that skips time does not move it. A loop that waits for a timer and then checks the local clock may run
forever.
The analysis covers a workflow, the functions inside it, and the functions of its module that these call after an
``await``, directly or through each other. It is deliberately simple. It warns about a comparison with a local clock
reading that was taken after an ``await``: the call itself, a function that returns it, a variable that holds it, or a
sum or difference of these. It does not warn about a time that is only logged, stored, passed on or formatted, or about
the time that a called function measures for itself.
"""

from __future__ import annotations

import ast
import datetime as dt
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any, TypeAlias

from dalsegno.errors import DalSegnoWarning
from dalsegno.lang.python.compile.scopes import names_of_function
from dalsegno.lang.python.compile.source import Source, parse_function, source_of
from dalsegno.lang.python.environment import Surroundings, stored_name_of
from dalsegno.lang.python.errors import UnsupportedPython

_READS = frozenset(("now", "utcnow", "today"))
"""Methods of ``datetime`` and its subclasses that read the clock."""
_COUNTERS = frozenset(("time", "time_ns", "monotonic", "monotonic_ns"))
"""Functions of the module ``time`` that read a clock; they are only recognised here, never called."""
_SAME_MOMENT = frozenset(("astimezone", "replace", "timestamp", "total_seconds"))
"""Methods that return the same moment, or the same span, in another form."""
_MODULES = frozenset(("datetime", "time"))
_OTHER_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

MESSAGE = (
    "workflow '{name}' compares '{clock}' after an await{place}. Timers run on the store's clock, which may differ from"
    " the local one: use now() of dalsegno, timeout() or race()"
)


_Function: TypeAlias = ast.AsyncFunctionDef | ast.FunctionDef


def warn_of_local_clock(workflow: ast.AsyncFunctionDef, source: Source, surroundings: Surroundings) -> None:
    """Issue a `DalSegnoWarning` for each comparison, once per process and line."""
    registry = surroundings.globals.setdefault("__warningregistry__", {})

    def warn(reads: _ClockReads, place: str) -> None:
        for line, clock in reads.compared():
            text = MESSAGE.format(name=workflow.name, clock=clock, place=place)
            warnings.warn_explicit(text, DalSegnoWarning, source.file, line, surroundings.module, registry)

    called = _CalledFunctions(surroundings.module)
    for function in [workflow, *_nested(workflow)]:
        reads = _ClockReads(function, surroundings.known, called)
        warn(reads, "")
        called.reach(reads.calls())
    for helper in called.reached():
        warn(helper, f", in {helper.name}()")


def _nested(workflow: ast.AsyncFunctionDef) -> list[ast.AsyncFunctionDef]:
    return [
        node for node in ast.walk(workflow) if isinstance(node, ast.AsyncFunctionDef) and node is not workflow
    ]


class _CalledFunctions:
    """Functions of the workflow's module, analysed when they are called."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._known: dict[FunctionType, _ClockReads | None] = {}
        self._reached: dict[FunctionType, _ClockReads] = {}

    def find(self, value: Any) -> _ClockReads | None:
        """Return the analysis; None if the value is not a function of the module, or has no source."""
        if not isinstance(value, FunctionType) or stored_name_of(value.__module__) != self._module:
            return None
        if value not in self._known:
            self._known[value] = None  # a recursive function is not read again
            self._known[value] = self._read(value)
        return self._known[value]

    def _read(self, function: FunctionType) -> _ClockReads | None:
        try:
            definition = parse_function(source_of(function, function.__name__), function.__name__)
        except UnsupportedPython:
            return None
        return _ClockReads(definition, Surroundings.of(function).known, self, is_called=True)

    def reach(self, called: Iterable[Any]) -> None:
        """Analyse functions that run after an await, and the functions they call."""
        for function in called:
            reads = self.find(function)
            if reads is not None and function not in self._reached:
                self._reached[function] = reads
                self.reach(reads.calls())

    def reached(self) -> Iterable[_ClockReads]:
        return self._reached.values()


class _ClockReads:
    """The reads of the local clock in one function, and where their values go."""

    def __init__(
        self,
        function: _Function,
        known: Callable[[str], Any],
        called: _CalledFunctions,
        *,
        is_called: bool = False,
    ) -> None:
        """``is_called``: the whole function runs after an await of the workflow, and in one turn."""
        self.name = function.name
        self._known = known
        self._called = called
        self._is_called = is_called
        self._nodes = list(_own_nodes(function))
        self._own: dict[str, Any] = dict.fromkeys(names_of_function(function).own)
        """Names that the function binds itself: known imports, else None."""
        self._own.update(_imports(self._nodes))
        self._first_await = min((_place(node) for node in self._nodes if _suspends(node)), default=None)
        self._repeated = {
            id(node)
            for loop in self._nodes
            if isinstance(loop, ast.For | ast.While) and any(_suspends(part) for part in ast.walk(loop))
            for node in ast.walk(loop)
        }
        self._held: dict[str, str] = {}
        """Variables that hold a moment read after an await, with the call that read it."""

    def compared(self) -> Iterator[tuple[int, str]]:
        """Yield the lines of comparisons, each with the call that reads the clock."""
        self._follow_assignments()
        for node in self._nodes:
            if isinstance(node, ast.Compare):
                clocks = (self._clock_in(side) for side in (node.left, *node.comparators))
                if clock := next(filter(None, clocks), None):
                    yield node.lineno, clock

    def calls(self) -> Iterator[Any]:
        """Yield the known functions that it calls after an await."""
        for node in self._nodes:
            if isinstance(node, ast.Call) and self._is_after_await(node):
                yield self._value(node.func)

    def returned(self) -> bool:
        """Return whether it returns a moment of the local clock."""
        self._follow_assignments()
        returns = (node.value for node in self._nodes if isinstance(node, ast.Return))
        return any(value is not None and self._clock_in(value) for value in returns)

    def _follow_assignments(self) -> None:
        """Follow assignments until nothing changes.

        In a loop, a variable may depend on one that is assigned further down.
        """
        before = -1
        while len(self._held) != before:
            before = len(self._held)
            for node in self._nodes:
                for name, value in _assigned(node):
                    if clock := self._clock_in(value):
                        self._held.setdefault(name, clock)

    def _clock_in(self, node: ast.expr) -> str:
        """Return the call that read the clock, if the value is such a moment or a span up to it."""
        match node:
            case ast.Name(id=name):
                return self._held.get(name, "")
            case ast.NamedExpr(value=value):
                return self._clock_in(value)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                clocks = self._clock_in(left), self._clock_in(right)
                return "" if self._is_called and all(clocks) else clocks[0] or clocks[1]
            case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in _SAME_MOMENT:
                return self._clock_in(value)
            case ast.Call(func=function) if self._is_after_await(node) and self._reads_clock(function):
                return f"{ast.unparse(function)}()"
        return ""

    def _is_after_await(self, node: ast.expr) -> bool:
        is_later = self._first_await is not None and _place(node) > self._first_await
        return self._is_called or is_later or id(node) in self._repeated

    def _reads_clock(self, function: ast.expr) -> bool:
        value = self._value(function)
        if (called := self._called.find(value)) is not None:
            return called.returned()
        holder, name = getattr(value, "__self__", None), getattr(value, "__name__", "")
        if isinstance(holder, type):
            return issubclass(holder, dt.datetime) and name in _READS
        return isinstance(holder, ModuleType) and holder.__name__ == "time" and name in _COUNTERS

    def _value(self, node: ast.expr) -> Any:
        """Return the value of a dotted name. Attributes are read only from modules and classes: that runs no code."""
        match node:
            case ast.Name(id=name):
                return self._own[name] if name in self._own else self._known(name)
            case ast.Attribute(value=holder, attr=name):
                value = self._value(holder)
                return getattr(value, name, None) if isinstance(value, ModuleType | type) else None
        return None


def _own_nodes(function: _Function) -> Iterator[ast.AST]:
    """Yield all nodes of its body in source order, except those of inner functions."""
    waiting: list[ast.AST] = list(reversed(function.body))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _OTHER_FUNCTIONS):
            waiting.extend(reversed(list(ast.iter_child_nodes(node))))


def _imports(nodes: list[ast.AST]) -> Iterator[tuple[str, Any]]:
    """Yield the names that the function imports from modules with clocks."""
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
