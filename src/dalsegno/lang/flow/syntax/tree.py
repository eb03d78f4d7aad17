"""Traversal of a program's tree without recursion, and the nesting depth of statements.

Blocks and expressions know their own depth, so nothing here recurses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from dalsegno.lang.expressions.syntax.tree import (
    Arrow,
    Assignment,
    Await,
    Binary,
    Block,
    Break,
    Call,
    Chain,
    Conditional,
    Continue,
    Declaration,
    Entry,
    ExpressionStatement,
    For,
    ForEach,
    Function,
    If,
    Index,
    ListLiteral,
    ListPattern,
    Literal,
    Logical,
    Member,
    Name,
    NamePattern,
    ObjectLiteral,
    ObjectPattern,
    Pattern,
    Program,
    Return,
    Spread,
    Target,
    TextTemplate,
    Throw,
    Try,
    Unary,
    While,
)

AnyNode: TypeAlias = Any
"""A statement, an expression, or a part of one."""


_PARTS: dict[type, Callable[[Any], Iterable[AnyNode | None]]] = {
    Literal: lambda node: (),
    Name: lambda node: (),
    Member: lambda node: (),
    NamePattern: lambda node: (),
    Break: lambda node: (),
    Continue: lambda node: (),
    TextTemplate: lambda node: node.parts,
    Spread: lambda node: (node.value,),
    ListLiteral: lambda node: node.items,
    Entry: lambda node: (node.key, node.value),
    ObjectLiteral: lambda node: node.entries,
    Index: lambda node: (node.index,),
    Call: lambda node: node.arguments,
    Chain: lambda node: (node.base, *node.links),
    Unary: lambda node: (node.operand,),
    Await: lambda node: (node.operand,),
    Binary: lambda node: (node.first, *(step.operand for step in node.steps)),
    Logical: lambda node: node.operands,
    Conditional: lambda node: (node.test, node.then, node.otherwise),
    Target: lambda node: (node.pattern, node.default),
    ListPattern: lambda node: node.targets,
    ObjectPattern: lambda node: (target for _, target in node.entries),
    Arrow: lambda node: (*node.parameters, node.body),
    Declaration: lambda node: (node.pattern, node.value),
    Assignment: lambda node: (node.target, node.value),
    ExpressionStatement: lambda node: (node.value,),
    Block: lambda node: node.body,
    If: lambda node: (node.test, node.then, node.otherwise),
    While: lambda node: (node.test, node.body),
    ForEach: lambda node: (node.pattern, node.subject, node.body),
    For: lambda node: (*node.init, node.test, *node.step, node.body),
    Return: lambda node: (node.value,),
    Throw: lambda node: (node.value,),
    Try: lambda node: (node.body, node.caught, node.handler, node.cleanup),
    Function: lambda node: (*node.parameters, node.body),
    Program: lambda node: (*node.functions, *node.parameters, node.body),
}


def parts_of(node: AnyNode) -> Iterator[AnyNode]:
    return (part for part in _PARTS[type(node)](node) if part is not None)


def walk(root: AnyNode, *, except_below: tuple[type, ...] = ()) -> Iterator[AnyNode]:
    """Yield the root and everything below it, in no particular order, except what is below nodes of the given types."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, except_below):
            pending.extend(parts_of(node))


def targets_of(pattern: Pattern) -> tuple[Target, ...]:
    if isinstance(pattern, NamePattern):
        return ()
    return (
        pattern.targets
        if isinstance(pattern, ListPattern)
        else tuple(target for _, target in pattern.entries)
    )


def names_in(pattern: Pattern) -> Iterator[NamePattern]:
    """Yield the variables of a pattern in source order; defaults are not visited."""
    if isinstance(pattern, NamePattern):
        yield pattern
    for target in targets_of(pattern):
        yield from names_in(target.pattern)


def depth_of(statement: Any) -> int:
    found: int = _DEPTHS[type(statement)](statement)
    return found


def _deepest(parts: Iterable[Any]) -> int:
    return max((part.depth for part in parts if part is not None), default=0)


def _for(statement: For) -> int:
    actions = max(map(depth_of, (*statement.init, *statement.step)), default=0)
    return max(actions, _deepest((statement.test, statement.body)))


_DEPTHS: dict[type, Callable[[Any], int]] = {
    Declaration: lambda statement: _deepest((statement.pattern, statement.value)),
    Assignment: lambda statement: _deepest((statement.target, statement.value)),
    ExpressionStatement: lambda statement: _deepest((statement.value,)),
    Block: lambda statement: _deepest((statement,)),
    If: lambda statement: _deepest((statement.test, statement.then, statement.otherwise)),
    While: lambda statement: _deepest((statement.test, statement.body)),
    ForEach: lambda statement: _deepest((statement.pattern, statement.subject, statement.body)),
    For: _for,
    Break: lambda statement: 0,
    Continue: lambda statement: 0,
    Return: lambda statement: _deepest((statement.value,)),
    Throw: lambda statement: _deepest((statement.value,)),
    Try: lambda statement: _deepest((statement.body, statement.caught, statement.handler, statement.cleanup)),
    Function: lambda statement: _deepest((*statement.parameters, statement.body)),
}
