"""Control flow around awaits: branches, loops, ``match``, ``try`` and ``with``."""

from __future__ import annotations

import ast
import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass

from dalsegno.lang.python.code import Op
from dalsegno.lang.python.compile.assembler import Guard, Label
from dalsegno.lang.python.compile.blocks import Blocks, Finalizing, Guarded, Handling, Loop, Managed, Watched
from dalsegno.lang.python.compile.expressions import at, placeholder
from dalsegno.lang.python.compile.scopes import has_await

GO_ON_RAISING = -1


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


@dataclass(slots=True)
class ExceptionFlow(ControlFlow):
    """Compiles statements that handle exceptions from inside them."""

    def try_(self, node: ast.Try) -> None:
        if node.finalbody:
            self._finally(node)
        else:
            self._except(node)

    def _finally(self, node: ast.Try) -> None:
        """Compile one copy of the ``finally`` body. Each entry leaves a payload and the continuation on the stack."""
        entry, end, caught = Label(), Label(), Label()
        depth = self.depth
        guard = self.guard(caught)
        self.blocks.append(Guarded(entry, depth, guard))
        if node.handlers:
            self._except(node)
        else:
            self.body(node.body)
        self.blocks.pop()
        self.close(guard)
        self.emit(Op.NOTHING)
        self.emit(Op.RESUME_AT, end)
        self.emit(Op.JUMP, entry)
        self.place(caught, depth + 1)
        self.emit(Op.RESUME_AT, GO_ON_RAISING)
        self.place(entry, depth + 2)
        self.emit(Op.FINALLY)
        self.handled += 1
        self.blocks.append(Finalizing(depth))
        self.body(node.finalbody)
        self.blocks.pop()
        self.emit(Op.END_FINALLY)
        self.handled -= 1
        self.place(end, depth + 1)
        self.emit(Op.POP)

    def _except(self, node: ast.Try) -> None:
        caught, end = Label(), Label()
        depth = self.depth
        guard = self.guard(caught)
        self.blocks.append(Watched(guard))
        self.body(node.body)
        self.blocks.pop()
        self.close(guard)
        self.body(node.orelse)
        self.emit(Op.JUMP, end)
        self.place(caught, depth + 1)
        self.emit(Op.CATCH)
        self.handled += 1
        for handler in node.handlers:
            self._handler(handler, end)
        self.emit(Op.AGAIN)
        self.handled -= 1
        self.place(end, depth)

    def _handler(self, handler: ast.ExceptHandler, end: Label) -> None:
        depth = self.depth
        other, unbind = Label(), Label()
        self.line = handler.lineno
        if handler.type is not None:
            self.expression(handler.type)
            self.emit(Op.MATCHES, other)
        if handler.name is None:
            self._handler_body(handler, None)
            self.emit(Op.JUMP, end)
        else:
            self.emit(Op.CAUGHT)
            self.store(handler.name)
            self._handler_body(handler, self.guard(unbind))
            self.clear(handler.name)
            self.emit(Op.JUMP, end)
            self.place(unbind, depth + 1)
            self.clear(handler.name)
            self.emit(Op.RAISE)
        self.place(other, depth)

    def _handler_body(self, handler: ast.ExceptHandler, guard: Guard | None) -> None:
        self.blocks.append(Handling(handler.name, guard))
        self.body(handler.body)
        self.blocks.pop()
        if guard is not None:
            self.close(guard)
        self.emit(Op.DONE)

    def with_(self, node: ast.With | ast.AsyncWith) -> None:
        self._managed(node, list(node.items))

    def _managed(self, node: ast.With | ast.AsyncWith, items: list[ast.withitem]) -> None:
        item, *more = items
        escaped, end = Label(), Label()
        depth = self.depth
        self.expression(item.context_expr)
        self.line = item.context_expr.lineno
        self.emit(Op.ENTER, int(isinstance(node, ast.AsyncWith)))
        guard = self.guard(escaped, depth + 1)
        self.blocks.append(Managed(depth + 1, guard))
        if item.optional_vars is not None:
            self.assign(item.optional_vars)
        else:
            self.emit(Op.POP)
        if more:
            self._managed(node, more)
        else:
            self.body(node.body)
        self.blocks.pop()
        self.close(guard)
        self.emit(Op.NOTHING)
        self.emit(Op.LEAVE)
        self.emit(Op.POP)
        self.emit(Op.JUMP, end)
        self.place(escaped, depth + 2)
        self.emit(Op.ESCAPE, end)
        self.place(end, depth)
