"""Control-flow checks: unreachable statements, and ``break`` outside of loops."""

from __future__ import annotations

from typing import Any

from dalsegno.lang.expressions.syntax.tree import (
    Arrow,
    Block,
    Break,
    Continue,
    For,
    ForEach,
    Function,
    If,
    Literal,
    Program,
    Return,
    Statement,
    Throw,
    Try,
    While,
)
from dalsegno.lang.flow.syntax.findings import Report
from dalsegno.lang.flow.syntax.tree import parts_of, walk

_LOOPS = (While, For, ForEach)
_LEAVES: dict[type, str] = {Return: "'return'", Throw: "'throw'", Break: "'break'", Continue: "'continue'"}


def check_control(program: Program, report: Report) -> None:
    _check_breaks(program, report)
    endings = _Endings()
    blocks = [node for node in walk(program) if isinstance(node, Block)]
    for block in reversed(blocks):  # from the inside, so that the parts of a block are known before the block
        _check_reachable(block, endings, report)


def _check_breaks(program: Program, report: Report) -> None:
    pending: list[tuple[Any, bool]] = [(program, False)]
    while pending:
        node, in_loop = pending.pop()
        if isinstance(node, Break | Continue):
            if not in_loop:
                word = "break" if isinstance(node, Break) else "continue"
                report.note(
                    "stray-break",
                    f"'{word}' is outside of a loop; leave a function with 'return'",
                    node.offset,
                )
        elif isinstance(node, Arrow | Function):
            pending.extend((part, False) for part in parts_of(node))
        elif isinstance(node, _LOOPS):
            pending.extend((part, in_loop or part is node.body) for part in parts_of(node))
        else:
            pending.extend((part, in_loop) for part in parts_of(node))


def _check_reachable(block: Block, endings: _Endings, report: Report) -> None:
    endings.block(block)
    ended: Statement | None = None
    for statement in block.body:
        if ended is not None and not isinstance(statement, Function):
            what = _LEAVES.get(type(ended), "the statement")
            message = f"this is never reached: control does not get past {what} in line {report.line_of(ended.offset)}"
            report.note("unreachable-code", message, _start_of(statement))
            return
        if ended is None and endings.ends(statement):
            ended = statement


def _start_of(statement: Statement) -> int:
    """Return the leftmost offset of a statement: an expression's own offset is that of its operator."""
    offsets: list[int] = [node.offset for node in walk(statement, except_below=(Arrow, Function))]
    return min(offsets)


class _Endings:
    """Determines which statements control never leaves at their end; each block is examined once."""

    def __init__(self) -> None:
        self.known: dict[int, bool] = {}

    def ends(self, statement: Statement) -> bool:
        match statement:
            case Return() | Throw() | Break() | Continue():
                return True
            case Block():
                return self.block(statement)
            case If():
                return (
                    statement.otherwise is not None
                    and self.block(statement.then)
                    and self.block(statement.otherwise)
                )
            case Try():
                return self.tried(statement)
            case While() | For():
                return _is_endless(statement)
            case _:
                return False

    def block(self, block: Block) -> bool:
        found = self.known.get(id(block))
        if found is None:
            found = self.known[id(block)] = any(self.ends(statement) for statement in block.body)
        return found

    def tried(self, statement: Try) -> bool:
        if statement.cleanup is not None and self.block(statement.cleanup):
            return True
        return self.block(statement.body) and (statement.handler is None or self.block(statement.handler))


def _is_endless(loop: While | For) -> bool:
    test = loop.test
    if test is not None and not (isinstance(test, Literal) and test.value is True):
        return False
    return not _has_break(loop.body)


def _has_break(body: Block) -> bool:
    pending: list[Any] = [body]
    while pending:
        node = pending.pop()
        if isinstance(node, Break):
            return True
        if not isinstance(node, (Arrow, Function, *_LOOPS)):
            pending.extend(parts_of(node))
    return False
