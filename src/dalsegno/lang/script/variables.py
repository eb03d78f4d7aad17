"""Variables, scopes and functions of a program, as far as they are known before it runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

Kind = Literal["let", "const", "function", "parameter", "caught"]


class FunctionFacts:
    """What is known about a function: whether it awaits, itself or through those it calls."""

    __slots__ = ("awaits", "calls")

    def __init__(self) -> None:
        self.awaits = False
        self.calls: set[Variable] = set()


class Variable:
    __slots__ = ("declared", "function", "kind", "name", "offset", "owner", "read")

    def __init__(self, name: str, kind: Kind, offset: int, owner: FunctionFacts) -> None:
        self.name = name
        self.kind = kind
        self.offset = offset
        self.owner = owner
        """The function that it is a variable of."""
        self.declared = kind not in ("let", "const")
        """Whether the walk has passed its declaration."""
        self.read = False
        self.function: FunctionFacts | None = None
        """Of the function that it was declared with."""


class Scope:
    __slots__ = ("function", "parent", "variables")

    def __init__(self, parent: Scope | None, function: FunctionFacts) -> None:
        self.parent = parent
        self.function = function
        self.variables: dict[str, Variable] = {}

    def find(self, name: str) -> Variable | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.variables:
                return scope.variables[name]
            scope = scope.parent
        return None

    def visible(self) -> Iterator[str]:
        scope: Scope | None = self
        while scope is not None:
            yield from scope.variables
            scope = scope.parent


def spread_awaiting(functions: Sequence[FunctionFacts]) -> None:
    """A function that calls an awaiting one awaits, too."""
    callers: dict[int, list[FunctionFacts]] = {}
    for facts in functions:
        for called in facts.calls:
            if called.function is not None:
                callers.setdefault(id(called.function), []).append(facts)
    pending = [facts for facts in functions if facts.awaits]
    while pending:
        for caller in callers.get(id(pending.pop()), ()):
            if not caller.awaits:
                caller.awaits = True
                pending.append(caller)
