"""The syntax tree of programs: statements. Expressions, patterns and arrows are in expressions/syntax/tree.py.

Assignments, `await` and functions with a body of statements exist in scripts only; graph expressions never contain
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as OneOf
from typing import TypeAlias

from dalsegno.lang.expressions.syntax.tree import Chain, Name, Node, Pattern, Target


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

    ``functions`` are beside the main function and are hoisted above it. ``parameters`` are those of ``workflow(…)``:
    none, one (the inputs) or two (context and inputs).
    """

    functions: tuple[Function, ...]
    parameters: tuple[Target, ...]
    body: Block
    name: str | None
    """The wrapper's own name, if it has one."""
    form: OneOf["statements", "main", "workflow"]
