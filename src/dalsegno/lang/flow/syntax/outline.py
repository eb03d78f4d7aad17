"""The sites of a script: awaits, calls and returns, inside the blocks around them. See lang/runtime/alignment.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from dalsegno.lang.expressions.syntax.tree import (
    Arrow,
    Await,
    Break,
    Call,
    Chain,
    Conditional,
    Continue,
    For,
    ForEach,
    Function,
    If,
    Index,
    Literal,
    Member,
    Name,
    Program,
    Return,
    Root,
    Try,
    While,
)
from dalsegno.lang.flow.syntax.tree import AnyNode, parts_of
from dalsegno.lang.runtime.alignment import FUNCTION, Site
from dalsegno.lang.stdlib import MUTATORS
from dalsegno.lang.stdlib.registry import is_library_name

LABEL = "named"
"""The method of a promise that gives its await a label."""

_ENDLESS = (Function, Arrow)
_NOT_COMPARED = frozenset(("offset", "depth"))
_CALL, _BLOCK = 1, 2
"""Weights: a call counts less than an await."""


class Outline:
    """Builds the tree of sites.

    ``line`` gives the line of an offset, ``numbers`` the function made at an offset, ``names`` the function's name.
    """

    def __init__(self, line: Callable[[int], int], numbers: dict[int, int], names: dict[int, str]) -> None:
        self._line = line
        self._numbers = numbers
        self._names = names
        self._depth = 0

    def program(self, tree: Program) -> Site:
        functions = [site for function in tree.functions for site in self._sites(function)]
        parameters = [site for target in tree.parameters for site in self._sites(target)]
        children = (*functions, *parameters, *self._sites(tree.body))
        return Site(FUNCTION, "main", 1, shape(tree), number=0, weight=_BLOCK, children=children)

    def _block(self, kind: str, node: AnyNode, parts: Sequence[AnyNode | None], **about: Any) -> Site:
        children = tuple(site for part in parts if part is not None for site in self._sites(part))
        key = about.pop("key", "")
        return Site(kind, key, self._line(node.offset), weight=_BLOCK, children=children, **about)

    def _sites(self, node: AnyNode) -> Iterator[Site]:
        match node:
            case Await():
                yield from self._sites(node.operand)
                yield self._leaf("await", node, node.operand)
            case Return(value=value) if self._depth == 0 and value is not None:
                yield from self._sites(value)
                yield self._leaf("return", node, value)
            case Function() | Arrow():
                yield self._function(node)
            case If() | Conditional():
                yield from self._sites(node.test)
                yield self._block("if", node, [node.then], detail=shape(node.test))
                if node.otherwise is not None:
                    yield self._block("else", node.otherwise, [node.otherwise])
            case While():
                yield self._block("while", node, [node.test, node.body], detail=shape(node.test))
            case For():
                yield self._block("for", node, [*node.init, node.test, node.body, *node.step])
            case ForEach():
                yield from self._sites(node.subject)
                subject = shape(node.subject)
                yield self._block("for", node, [node.body], key=node.over, detail=subject, keeps_state=True)
            case Try():
                yield from self._try(node)
            case Chain():
                yield from self._chain(node)
            case _:
                for part in parts_of(node):
                    yield from self._sites(part)

    def _leaf(self, kind: str, node: AnyNode, value: AnyNode) -> Site:
        key, label = callee(value)
        return Site(kind, key, self._line(node.offset), shape(value), label, node.offset)

    def _function(self, node: Function | Arrow) -> Site:
        self._depth += 1
        number = self._numbers.get(node.offset, -1)
        name = self._names.get(number, "")
        found = self._block(
            FUNCTION, node, [*node.parameters, node.body], key=name, detail=shape(node), number=number
        )
        self._depth -= 1
        return found

    def _try(self, node: Try) -> Iterator[Site]:
        inner = [self._block("try", node, [node.body])]
        if node.handler is not None:
            inner.append(self._block("catch", node.handler, [node.handler]))
        if node.cleanup is None:
            yield from inner
            return
        exits = tuple(_exits([node.body, *([node.handler] if node.handler is not None else [])]))
        yield Site("try", "finally", self._line(node.offset), weight=_BLOCK, children=tuple(inner))
        yield self._block("finally", node.cleanup, [node.cleanup], key=exits, keeps_state=True)

    def _chain(self, node: Chain) -> Iterator[Site]:
        """Yield the parts of a chain; a call comes after its arguments."""
        yield from self._sites(node.base)
        for at, link in enumerate(node.links):
            yield from self._sites(link)
            if isinstance(link, Call) and _may_enter(node, at):
                member = node.links[at - 1] if at else None
                name = member.name if isinstance(member, Member) else ""
                place = member.offset if name and member is not None else link.offset
                whole = shape(Chain(node.base, node.links[: at + 1], node.offset, 1))
                key = callee(Chain(node.base, node.links[: at + 1], node.offset, 1))[0]
                yield Site("call", (name, key), self._line(place), whole, None, place, weight=_CALL)


def _may_enter(chain: Chain, at: int) -> bool:
    """Return whether a call may enter a function of the program; most functions of the library never do."""
    base = chain.base
    member = chain.links[at - 1] if at else None
    name = base.name if isinstance(base, Name) else base.key if isinstance(base, Root) else ""
    if isinstance(member, Member):
        return not (is_library_name(name) and at == 1) and (
            member.name not in MUTATORS and member.name != LABEL
        )
    return not (at == 0 and is_library_name(name))


def callee(node: AnyNode) -> tuple[tuple[str, ...], str | None]:
    """Return what a node calls, with the name that it gives first, and the label of its promise."""
    if isinstance(node, Name):
        return ("", node.name), None
    if not isinstance(node, Chain):
        return (type(node).__name__,), None
    base = node.base
    names = (
        [base.name]
        if isinstance(base, Name)
        else [base.key]
        if isinstance(base, Root)
        else [type(base).__name__]
    )
    label = first = None
    skips = is_label = False
    for link in node.links:
        if isinstance(link, Member):
            skips = link.name in (LABEL, "with")
            if not skips:
                names.append(link.name)
            is_label = link.name == LABEL
        elif isinstance(link, Index):
            names.append("[]")
        elif skips:
            label = _text(link) if is_label else label
        else:
            first = _text(link)
    return (".".join(names), first or ""), label


def _text(call: Call) -> str | None:
    """Return the first argument of a call if it is a text."""
    first = call.arguments[0] if call.arguments else None
    return first.value if isinstance(first, Literal) and isinstance(first.value, str) else None


def _exits(blocks: Sequence[AnyNode], in_loop: bool = False) -> Iterator[Any]:
    """Yield the exits out of blocks: a ``finally`` numbers them in this order."""
    for node in blocks:
        match node:
            case Function() | Arrow():
                continue
            case Return():
                yield "return"
            case Break() | Continue():
                if not in_loop:
                    yield type(node).__name__
            case While() | For() | ForEach():
                yield from _exits([node.body], in_loop=True)
            case Try(cleanup=cleanup) if cleanup is not None:
                inner = [part for part in (node.body, node.handler) if part is not None]
                yield tuple(_exits(inner, in_loop))
                yield from _exits([cleanup], in_loop)
            case _:
                yield from _exits(list(parts_of(node)), in_loop)


def shape(node: Any) -> Any:
    """Return a node without its positions, for comparisons. Values of different types differ: 1, 1.0 and true."""
    if is_dataclass(node):
        return (
            type(node).__name__,
            *[shape(getattr(node, field.name)) for field in fields(node) if field.name not in _NOT_COMPARED],
        )
    if isinstance(node, tuple | list):
        return tuple([shape(item) for item in node])
    return (type(node).__name__, node)
