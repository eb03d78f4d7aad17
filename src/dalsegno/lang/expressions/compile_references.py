"""Compiles references and calls: a base and the links after it.

Names get their meaning here: variables first, then nodes of the graph, then the library. Where a missing path is
tolerated (``?.``, comparisons, ``??``, conditions), the chain jumps to its end with null.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import chain as joined

from dalsegno.lang.errors import ExpressionError
from dalsegno.lang.expressions.assembler import ConstantPool, FunctionAssembler
from dalsegno.lang.expressions.names import BARE_SPECIALS, NODE_ROOT, RootNames, skips_output
from dalsegno.lang.expressions.syntax.tree import (
    Call,
    Chain,
    Index,
    Link,
    Literal,
    Member,
    Name,
    Node,
    Root,
    Spread,
)
from dalsegno.lang.runtime.code import Op
from dalsegno.lang.stdlib import CONSTANTS, FUNCTIONS, NAMESPACES, library_name

_SUGGEST_AMONG = 2_000
"""With more names than this, the search for a similar one costs more than it helps."""


class ChainCompiler(ABC):
    """The part of the compiler that handles `Chain`."""

    source: str
    names: RootNames
    condition: bool
    pool: ConstantPool
    here: FunctionAssembler
    makes_foreign: bool

    @abstractmethod
    def problem(self, message: str, offset: int) -> ExpressionError: ...

    @abstractmethod
    def refer(self, root: str, offset: int) -> None: ...

    @abstractmethod
    def node(self, node: Node, lenient: bool = False) -> None: ...

    @abstractmethod
    def list_of(self, items: Sequence[Node | Spread], offset: int) -> None: ...

    @abstractmethod
    def logical(self, operator: str, operands: Sequence[Node], offset: int, lenient: bool) -> None: ...

    def chain(self, chain: Chain, lenient: bool) -> None:
        exits: list[int] = []
        links = list(chain.links)
        position = self.base(chain.base, links, lenient, exits)
        while position < len(links):
            tolerant = lenient or self.tolerates(links, position)
            position = self.link(chain, links, position, tolerant, exits)
        self.here.land(*exits)

    @staticmethod
    def tolerates(links: Sequence[Link], position: int) -> bool:
        """Return whether a link may be missing: it is optional itself, or the next one applies ``?.`` to its value."""
        return any(not isinstance(link, Call) and link.optional for link in links[position : position + 2])

    # the base

    def base(self, base: Node, links: list[Link], lenient: bool, exits: list[int]) -> int:
        """Compile the base of the chain; return the number of links that this used up."""
        if isinstance(base, Root):
            return self.root(base.key, base.offset, links, lenient, exits)
        if isinstance(base, Name):
            return self.name(base, links, lenient, exits)
        self.node(base, lenient)
        return 0

    def root(self, key: str, offset: int, links: list[Link], lenient: bool, exits: list[int]) -> int:
        used = 0
        if key == NODE_ROOT:
            key, used = self.named_node(offset, links), 1
        self.refer(key, offset)
        tolerant = lenient or any(
            not isinstance(link, Call) and link.optional for link in links[used : used + 1]
        )
        position = self.here.emit(Op.ROOT, self.pool.add(key), -1, at=offset)
        if tolerant:
            exits.append(position)
        if skips_output(key) and len(links) > used and self.is_output(links[used]):
            self.here.emit(Op.OUTPUT, at=links[used].offset)
            used += 1
        return used

    @staticmethod
    def is_output(link: Link) -> bool:
        return isinstance(link, Member) and link.name == "output"

    def named_node(self, offset: int, links: Sequence[Link]) -> str:
        """Return the name in ``$node.Name`` and ``$node["any name"]``."""
        first = links[0] if links else None
        name = None
        if isinstance(first, Member):
            name = first.name
        elif (
            isinstance(first, Index)
            and isinstance(first.index, Literal)
            and isinstance(first.index.value, str)
        ):
            name = first.index.value
        if first is None or name is None:
            raise self.problem('write $node["Name of the node"], with the name in quotes', offset)
        key = self.names.resolve(name)
        if key is None:
            raise self.problem(f"there is no node '{name}'{self.suggestion(name)}", first.offset)
        return key

    def name(self, base: Name, links: list[Link], lenient: bool, exits: list[int]) -> int:
        name, offset = base.name, base.offset
        variable = self.here.find(name)
        if variable is not None:
            self.here.load(variable.slot, at=offset)
            return 0
        if name in self.names.variables:
            self.here.emit(Op.EXTERNAL, self.pool.add(name), at=offset)
            return 0
        is_call = bool(links) and isinstance(links[0], Call)
        key = self.names.resolve(name) or BARE_SPECIALS.get(name)
        if key is not None and not (is_call and self.is_function(name)):
            return self.root(key, offset, links, lenient, exits)
        return self.library(name, offset, links)

    @staticmethod
    def is_function(name: str) -> bool:
        return name == "default" or library_name(name) in FUNCTIONS

    def library(self, name: str, offset: int, links: list[Link]) -> int:
        first = links[0] if links else None
        if name == "default" and isinstance(first, Call):
            return self.default(first)
        full = library_name(name)
        if full in NAMESPACES and isinstance(first, Member):
            return self.namespace_member(full, first)
        if full in FUNCTIONS:
            self.makes_foreign = True
            self.here.emit(Op.BUILTIN, self.pool.add(full), at=offset)
            return 0
        if full in NAMESPACES:
            raise self.problem(f"'{name}' is not a value: write {full}.something(…)", offset)
        if name.startswith("$"):
            raise self.problem(f"unknown root '{name}'{self.suggestion(name[1:], '$')}", offset)
        raise self.problem(f"Undefined variable '{name}'{self.suggestion(name)}", offset)

    def namespace_member(self, namespace: str, member: Member) -> int:
        full = f"{namespace}.{member.name}"
        if full in CONSTANTS:
            self.here.emit(Op.CONSTANT, self.pool.add(CONSTANTS[full]), at=member.offset)
        elif full in FUNCTIONS:
            self.makes_foreign = True
            self.here.emit(Op.BUILTIN, self.pool.add(full), at=member.offset)
        else:
            candidates = [name for name in FUNCTIONS if name.startswith(f"{namespace}.")]
            close = difflib.get_close_matches(full, candidates, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise self.problem(f"there is no {full}{hint}", member.offset)
        return 1

    def default(self, call: Call) -> int:
        """Compile ``default(x, y)`` as ``x ?? y``: it must neither fail nor evaluate ``y`` too early."""
        arguments = [argument for argument in call.arguments if not isinstance(argument, Spread)]
        if len(arguments) < 2 or len(arguments) != len(call.arguments):
            raise self.problem("default() takes a value and what to use when it is missing", call.offset)
        self.logical("??", arguments, call.offset, lenient=False)
        return 1

    def suggestion(self, name: str, sign: str = "") -> str:
        if len(self.names.ids) > _SUGGEST_AMONG:
            return ""
        candidates = joined(self.names.ids, self.names.names, self.names.variables)
        close = difflib.get_close_matches(name, list(candidates), 1)
        return f"; did you mean '{sign}{close[0]}'?" if close else ""

    # the links

    def link(
        self, chain: Chain, links: Sequence[Link], position: int, tolerant: bool, exits: list[int]
    ) -> int:
        """Compile one link, or a member and its call; return the position after it."""
        link = links[position]
        following = links[position + 1] if position + 1 < len(links) else None
        if isinstance(link, Member):
            if isinstance(following, Call):
                self.method(link, following, tolerant, exits)
                return position + 2
            operand = self.pool.add(link.name)
            self.read(
                Op.TRY_MEMBER if tolerant else Op.MEMBER, operand, chain.offset, link.offset, tolerant, exits
            )
        elif isinstance(link, Index):
            self.node(link.index, self.condition)
            self.read(Op.TRY_INDEX if tolerant else Op.INDEX, 0, chain.offset, link.offset, tolerant, exits)
        else:
            self.here.emit(Op.CALL, self.arguments(link), at=link.offset)
        return position + 1

    def read(self, op: Op, operand: int, start: int, offset: int, tolerant: bool, exits: list[int]) -> None:
        emitted = self.here.emit(op, operand, start, at=offset)
        if tolerant:
            exits.append(emitted)

    def method(self, member: Member, call: Call, tolerant: bool, exits: list[int]) -> None:
        name = self.pool.add(member.name)
        if tolerant:
            exits.append(self.here.emit(Op.CHECK_METHOD, name, at=member.offset))
        self.here.emit(Op.METHOD, self.arguments(call), name, at=member.offset)

    def arguments(self, call: Call) -> int:
        """Compile arguments; return their number, or -1 if they were collected in a list because of ``...``."""
        if any(isinstance(argument, Spread) for argument in call.arguments):
            self.list_of(call.arguments, call.offset)
            return -1
        for argument in call.arguments:
            if not isinstance(argument, Spread):
                self.node(argument, self.condition)
        return len(call.arguments)
