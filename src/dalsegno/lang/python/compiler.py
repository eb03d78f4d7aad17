"""From a workflow's syntax tree to the code of all its functions: itself, then its nested async functions."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dalsegno.lang.python.code import FunctionCode
from dalsegno.lang.python.liveness import live_variables
from dalsegno.lang.python.opcodes import Op
from dalsegno.lang.python.scopes import names_of_function, parameter_names
from dalsegno.lang.python.statements import Statements
from dalsegno.lang.python.syntax_trees import pack
from dalsegno.lang.python.wrapping import TICK, FragmentWriter, mentions_loop


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An async function that is still to be compiled."""

    node: ast.AsyncFunctionDef
    qualname: str
    enclosing: tuple[str, ...]
    """Variables of the function around it; none for the workflow itself."""


@dataclass(frozen=True, slots=True)
class _Variables:
    """All cells of a function, in their order."""

    own: tuple[str, ...]
    captured: tuple[str, ...]
    outside: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.own, *self.captured, *self.outside)


class Compiler:
    """``outside``: names that the workflow's surroundings bind to cells, such as variables of a function that the
    workflow was defined in."""

    def __init__(self, outside: frozenset[str]) -> None:
        self._outside = outside
        self._functions: list[_Waiting] = []

    def compile(self, workflow: ast.AsyncFunctionDef, qualname: str) -> tuple[FunctionCode, ...]:
        self._functions.append(_Waiting(workflow, qualname, ()))
        codes: list[FunctionCode] = []
        while len(codes) < len(self._functions):
            codes.append(self._function(self._functions[len(codes)]))
        return tuple(codes)

    def _function(self, waiting: _Waiting) -> FunctionCode:
        node = waiting.node
        variables = self._variables(waiting)
        assembly = self._assembled(waiting, variables)
        masks = live_variables(assembly.emitted, assembly.regions, variables.all)
        shared = names_of_function(node).shared | set(variables.captured)
        return FunctionCode(
            name=node.name,
            qualname=waiting.qualname,
            line=node.lineno,
            instructions=tuple(one.resolved() for one in assembly.emitted),
            lines=tuple(one.line for one in assembly.emitted),
            handlers=tuple(region.resolved() for region in assembly.regions),
            variables=variables.all,
            parameters=tuple(parameter_names(node.args)),
            own=len(variables.own),
            captured=tuple(waiting.enclosing.index(name) for name in variables.captured),
            live=tuple(f"{mask:x}" for mask in masks),
            shared=f"{_mask(shared, variables.all):x}",
            syntax=pack(assembly.writer.module()),
            rest=node.args.vararg.arg if node.args.vararg is not None else "",
            named=node.args.kwarg.arg if node.args.kwarg is not None else "",
        )

    def _variables(self, waiting: _Waiting) -> _Variables:
        parameters = parameter_names(waiting.node.args)
        names = names_of_function(waiting.node)
        captured = sorted(names.free & set(waiting.enclosing))
        outside = sorted((names.free & self._outside) - set(captured))
        if mentions_loop(waiting.node):
            outside.append(TICK)
        return _Variables(
            (*parameters, *sorted(names.own - set(parameters))), tuple(captured), tuple(outside)
        )

    def _assembled(self, waiting: _Waiting, variables: _Variables) -> Statements:
        def enlist(nested: ast.AsyncFunctionDef) -> int:
            qualname = f"{waiting.qualname}.<locals>.{nested.name}"
            self._functions.append(_Waiting(nested, qualname, (*variables.own, *variables.captured)))
            return len(self._functions) - 1

        line = waiting.node.lineno
        assembly = Statements(variables.all, FragmentWriter(variables.all, line), line, enlist=enlist)
        assembly.body(waiting.node.body)
        assembly.emit(Op.NOTHING)
        assembly.emit(Op.RETURN)
        return assembly


def _mask(names: Iterable[str], variables: Sequence[str]) -> int:
    return sum(1 << variables.index(name) for name in set(names) & set(variables))
