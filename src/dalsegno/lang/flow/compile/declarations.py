"""The names that blocks declare, and the names that a program assigns without a declaration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dalsegno.lang.expressions.syntax.tree import (
    Block,
    Declaration,
    Function,
    ListPattern,
    NamePattern,
    ObjectPattern,
    Pattern,
    Statement,
)


def pattern_names(pattern: Pattern) -> Iterator[str]:
    """Yield the names that a pattern binds, in order."""
    match pattern:
        case NamePattern():
            yield pattern.name
        case ListPattern():
            for target in pattern.targets:
                yield from pattern_names(target.pattern)
        case ObjectPattern():
            for _, target in pattern.entries:
                yield from pattern_names(target.pattern)


def declared_names(statements: Iterable[Statement]) -> list[tuple[str, bool]]:
    """Return the names that a block itself declares, each once, and whether they are constant."""
    found: dict[str, bool] = {}
    for statement in statements:
        if isinstance(statement, Function):
            found.setdefault(statement.name, False)
        elif isinstance(statement, Declaration):
            for name in pattern_names(statement.pattern):
                found[name] = found.get(name, True) and statement.constant
    return list(found.items())


def functions_of(block: Block) -> list[Function]:
    return [statement for statement in block.body if isinstance(statement, Function)]
