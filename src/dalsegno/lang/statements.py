"""The syntax tree of programs: statements. Expressions are in syntax.py, together with patterns and arrows.

Assignments, `await` and functions with a body of statements are expressions and statements of scripts only; graph
expressions never contain them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as OneOf
from typing import TypeAlias

from dalsegno.lang.syntax import Chain, Name, Node, Pattern, Target


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
    """``depth`` counts this block and what nests inside it, expressions included."""

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
    """``for (let x of …)`` and ``for (let k in …)``. ``declares`` is None where a variable that exists is assigned."""

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
    """At least one of ``handler`` and ``cleanup`` is there; ``caught`` is the pattern of ``catch (e)``."""

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
    """A whole source. Whatever its form, ``body`` is what runs.

    ``functions`` stand beside the main function and are hoisted over it. ``parameters`` are those of
    ``workflow(…)``: none, one (the inputs) or two (context and inputs).
    """

    functions: tuple[Function, ...]
    parameters: tuple[Target, ...]
    body: Block
    name: str | None
    """The wrapper's own name, where it has one."""
    form: OneOf["statements", "main", "workflow"]
