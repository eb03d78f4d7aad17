"""``try`` and ``with`` around awaits."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from dalsegno.lang.python.code import Op
from dalsegno.lang.python.compile.assembler import Guard, Label
from dalsegno.lang.python.compile.blocks import Finalizing, Guarded, Handling, Managed, Watched
from dalsegno.lang.python.compile.control_flow import ControlFlow

GO_ON_RAISING = -1


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
