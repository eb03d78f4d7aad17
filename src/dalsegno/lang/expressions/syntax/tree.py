"""The syntax tree. Every node knows its offset in the source and its nesting depth.

Chains of postfix links and of operators of one level are flat, so that a long sum is not a deep tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from dalsegno.lang.flow.syntax.statements import Block


@dataclass(frozen=True, slots=True)
class Literal:
    value: bool | int | float | str | None
    offset: int
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Name:
    """A plain identifier: variable, bare node name or builtin; the compiler decides which."""

    name: str
    offset: int
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Root:
    """A root of a graph, already resolved to its key."""

    key: str
    offset: int
    depth: int = 1


@dataclass(frozen=True, slots=True)
class TextTemplate:
    parts: tuple[Node, ...]
    offset: int
    depth: int


@dataclass(frozen=True, slots=True)
class Spread:
    """``...value`` inside a list, an object or arguments."""

    value: Node
    offset: int
    depth: int


@dataclass(frozen=True, slots=True)
class ListLiteral:
    items: tuple[Node | Spread, ...]
    offset: int
    depth: int


@dataclass(frozen=True, slots=True)
class Entry:
    """``key: value`` of an object literal; the key is a node because it may be computed."""

    key: Node
    value: Node
    offset: int
    depth: int


@dataclass(frozen=True, slots=True)
class ObjectLiteral:
    entries: tuple[Entry | Spread, ...]
    offset: int
    depth: int


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    optional: bool
    offset: int
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Index:
    index: Node
    optional: bool
    offset: int
    depth: int


@dataclass(frozen=True, slots=True)
class Call:
    arguments: tuple[Node | Spread, ...]
    offset: int
    depth: int


Link: TypeAlias = Member | Index | Call


@dataclass(frozen=True, slots=True)
class Chain:
    """``base`` followed by at least one link."""

    base: Node
    links: tuple[Link, ...]
    offset: int
    depth: int


@dataclass(frozen=True, slots=True)
class Unary:
    operator: str
    operand: Node
    offset: int
    depth: int


@dataclass(frozen=True, slots=True)
class Step:
    """One operator of a chain and its right operand."""

    operator: str
    operand: Node
    offset: int


@dataclass(slots=True)
class Binary:
    """``first`` combined with each step from left to right. It grows while its sequence is read."""

    first: Node
    steps: list[Step]
    offset: int
    depth: int


@dataclass(slots=True)
class Logical:
    """Operands joined by one of ``&& || ??``, each evaluated only when needed. It grows like `Binary`."""

    operator: str
    operands: list[Node]
    offset: int
    depth: int


@dataclass(frozen=True, slots=True)
class Conditional:
    test: Node
    then: Node
    otherwise: Node
    offset: int
    depth: int


@dataclass(frozen=True, slots=True)
class NamePattern:
    name: str
    offset: int
    depth: int = 1


@dataclass(frozen=True, slots=True)
class ListPattern:
    targets: tuple[Target, ...]
    offset: int
    depth: int


@dataclass(frozen=True, slots=True)
class ObjectPattern:
    entries: tuple[tuple[str, Target], ...]
    offset: int
    depth: int


Pattern: TypeAlias = NamePattern | ListPattern | ObjectPattern


@dataclass(frozen=True, slots=True)
class Target:
    """One item of a pattern or parameter list."""

    pattern: Pattern
    default: Node | None
    rest: bool
    offset: int
    depth: int


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow function or a function expression; in scripts its body may be a block of statements."""

    parameters: tuple[Target, ...]
    body: Node | Block
    offset: int
    depth: int


@dataclass(frozen=True, slots=True)
class Await:
    """An ``await``; it occurs in scripts only."""

    operand: Node
    offset: int
    depth: int


Node: TypeAlias = (
    Literal
    | Name
    | Root
    | TextTemplate
    | ListLiteral
    | ObjectLiteral
    | Chain
    | Unary
    | Binary
    | Logical
    | Conditional
    | Arrow
    | Await
)
