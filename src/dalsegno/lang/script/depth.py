"""How deeply a statement nests. Blocks and expressions know their own depth, so nothing here recurses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dalsegno.lang.statements import (
    Assignment,
    Block,
    Break,
    Continue,
    Declaration,
    ExpressionStatement,
    For,
    ForEach,
    Function,
    If,
    Return,
    Throw,
    Try,
    While,
)


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
