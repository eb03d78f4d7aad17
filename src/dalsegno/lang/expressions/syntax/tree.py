"""The syntax tree of expressions and scripts. Every node knows its offset in the source and its nesting depth.

Chains of postfix links and of operators of one level are flat, so that a long sum is not a deep tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as OneOf
from typing import TypeAlias


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


# -- statements ------------------------------------------------------------------------------------------------
# Assignments, `await` and functions with a body of statements exist in scripts only.


@dataclass(frozen=True, slots=True)
class Declaration:
    """One declarator of ``let`` or ``const``; ``value`` is None without an initialiser."""

    pattern: Pattern
    value: Node | None
    constant: bool
    offset: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """``target operator value``: ``=``, ``+=`` … and, with the value 1, ``++``/``--`` as ``+=``/``-=``.

    A target is a name, a chain that ends in a member or an index, or (with ``=`` only) a pattern.
    """

    target: Name | Chain | Pattern
    operator: str
    value: Node
    offset: int


@dataclass(frozen=True, slots=True)
class ExpressionStatement:
    value: Node
    offset: int


@dataclass(frozen=True, slots=True)
class Block:
    """A block. ``depth`` counts this block and everything nested in it, expressions included."""

    body: tuple[Statement, ...]
    offset: int
    depth: int = 1


@dataclass(frozen=True, slots=True)
class If:
    test: Node
    then: Block
    otherwise: Block | None
    """``else if`` is a block that holds one `If`."""
    offset: int


@dataclass(frozen=True, slots=True)
class While:
    test: Node
    body: Block
    offset: int


@dataclass(frozen=True, slots=True)
class ForEach:
    """``for (let x of …)`` and ``for (let k in …)``. ``declares`` is None where an existing variable is assigned."""

    pattern: Pattern
    declares: OneOf["let", "const"] | None
    over: OneOf["of", "in"]
    subject: Node
    body: Block
    offset: int


@dataclass(frozen=True, slots=True)
class For:
    """``for (init; test; step)``; each part may be missing."""

    init: tuple[Statement, ...]
    test: Node | None
    step: tuple[Statement, ...]
    body: Block
    offset: int


@dataclass(frozen=True, slots=True)
class Break:
    offset: int


@dataclass(frozen=True, slots=True)
class Continue:
    offset: int


@dataclass(frozen=True, slots=True)
class Return:
    value: Node | None
    offset: int


@dataclass(frozen=True, slots=True)
class Throw:
    value: Node
    offset: int


@dataclass(frozen=True, slots=True)
class Try:
    """A ``try`` with ``handler``, ``cleanup`` or both; ``caught`` is the pattern of ``catch (e)``."""

    body: Block
    caught: Pattern | None
    handler: Block | None
    cleanup: Block | None
    offset: int


@dataclass(frozen=True, slots=True)
class Function:
    """A declaration ``function name(…) { … }``, hoisted to the top of its block."""

    name: str
    parameters: tuple[Target, ...]
    body: Block
    offset: int


Statement: TypeAlias = (
    Declaration
    | Assignment
    | ExpressionStatement
    | Block
    | If
    | While
    | ForEach
    | For
    | Break
    | Continue
    | Return
    | Throw
    | Try
    | Function
)


@dataclass(frozen=True, slots=True)
class Program:
    """A whole source. ``body`` is the code that runs, whatever the program's form.

    ``functions`` are the functions outside the main one and are hoisted above it. ``parameters`` are those of
    ``workflow(…)``: none, one (the inputs) or two (context and inputs).
    """

    functions: tuple[Function, ...]
    parameters: tuple[Target, ...]
    body: Block
    name: str | None
    """The wrapper's own name, if it has one."""
    form: OneOf["statements", "main", "workflow"]
