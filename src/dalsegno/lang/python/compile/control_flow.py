"""Branches, loops and ``match`` around awaits."""

from __future__ import annotations

import ast
import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass

from dalsegno.lang.python.code import Op
from dalsegno.lang.python.compile.assembler import Label
from dalsegno.lang.python.compile.blocks import Blocks, Loop
from dalsegno.lang.python.compile.expressions import at, placeholder
from dalsegno.lang.python.compile.scopes import has_await


@dataclass(slots=True)
class ControlFlow(Blocks, ABC):
    """Compiles branches, loops and ``match``."""

    @abstractmethod
    def body(self, statements: list[ast.stmt]) -> None:
        """Compile a sequence of statements."""

    def if_(self, node: ast.If) -> None:
        otherwise, end = Label(), Label()
        self.expression(node.test)
        self.emit(Op.JUMP_IF_FALSE, otherwise)
        self.body(node.body)
        if node.orelse:
            self.emit(Op.JUMP, end)
        self.place(otherwise)
        self.body(node.orelse)
        self.place(end)

    def while_(self, node: ast.While) -> None:
        again, otherwise, end = Label(), Label(), Label()
        self.place(again)
        self.line = node.lineno
        if not (isinstance(node.test, ast.Constant) and node.test.value):
            self.expression(node.test)
            self.emit(Op.JUMP_IF_FALSE, otherwise)
        self.blocks.append(Loop(again, end, self.depth, self.depth))
        self.body(node.body)
        self.blocks.pop()
        self.emit(Op.JUMP, again)
        self.place(otherwise)
        self.body(node.orelse)
        self.place(end)

    def for_(self, node: ast.For) -> None:
        again, exhausted, end = Label(), Label(), Label()
        depth = self.depth
        self.expression(node.iter)
        self.emit(Op.ITERATE)
        self.place(again)
        self.line = node.lineno
        self.emit(Op.NEXT, exhausted)
        self.assign(node.target)
        self.blocks.append(Loop(again, end, depth, depth + 1))
        self.body(node.body)
        self.blocks.pop()
        self.emit(Op.JUMP, again)
        self.place(exhausted, depth)
        self.body(node.orelse)
        self.place(end, depth)

    def match_(self, node: ast.Match) -> None:
        """Compile a ``match``.

        Python matches the patterns, one fragment per case; the subject stays on the stack until one fits.
        """
        end = Label()
        depth = self.depth
        self.expression(node.subject)
        for case in node.cases:
            no_match = Label()
            self.line = case.pattern.lineno
            self._fits(case, no_match)
            self.emit(Op.POP)
            self.body(case.body)
            self.emit(Op.JUMP, end)
            self.place(no_match, depth + 1)
        self.emit(Op.POP)
        self.place(end, depth)

    def _fits(self, case: ast.match_case, no_match: Label) -> None:
        awaited = case.guard if case.guard is not None and has_await(case.guard) else None
        place = case.pattern
        yes = at(ast.Return(ast.copy_location(ast.Constant(True), place)), place)
        guard = None if awaited is not None else copy.deepcopy(case.guard)
        only = ast.match_case(copy.deepcopy(case.pattern), guard, [yes])
        self.emit(Op.COPY, 1)
        self.test([at(ast.Match(placeholder(0, place), [only]), place)], 1)
        self.emit(Op.JUMP_IF_FALSE, no_match)
        if awaited is not None:
            self.expression(awaited)
            self.emit(Op.JUMP_IF_FALSE, no_match)
