"""Expressions of scripts.

They are the expressions of graphs, strict about missing paths, plus ``await``, functions with a body of statements,
calls that change the list they are made on, and names that mean variables or the script library.
Nothing here raises: an invalid name is an error when the program runs (validation reports it earlier).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from dalsegno.lang.expressions.assembler import HIDDEN
from dalsegno.lang.expressions.compiler import Compiler
from dalsegno.lang.expressions.names import RootNames
from dalsegno.lang.expressions.syntax.tree import (
    Await,
    Call,
    Chain,
    Index,
    Link,
    Literal,
    Member,
    Name,
    Node,
    Root,
)
from dalsegno.lang.runtime.code import CAPTURED, GLOBAL, SLOT, Op, Place
from dalsegno.lang.stdlib import MUTATORS
from dalsegno.lang.stdlib.registry import (
    SCRIPT_CONSTANTS,
    SCRIPT_FUNCTIONS,
    SCRIPT_NAMESPACES,
    is_library_name,
    script_name,
)

_NO_ROOTS = RootNames.of()
GIVEN = {"inputs": "Inputs", "Inputs": "Inputs", "context": "Context", "Context": "Context"}
"""Spellings of the variables that every program receives."""


class ScriptExpressions(Compiler):
    """The part of the script compiler that handles expressions."""

    def __init__(self, source: str) -> None:
        super().__init__(source, _NO_ROOTS)
        self.places: list[Place] = []
        self.assigned: frozenset[str] = frozenset()
        """Names that an assignment may make workflow-wide variables."""

    def node(self, node: Node, lenient: bool = False) -> None:
        if isinstance(node, Await):
            self.node(node.operand)
            self.here.emit(Op.AWAIT, at=node.offset)
        else:
            super().node(node)

    def fail(self, code: str, message: str, offset: int) -> None:
        """Compile an instruction that throws this error when it is reached."""
        self.here.emit(Op.FAIL, self.pool.add(code), self.pool.add(message), at=offset)

    # names

    def name(self, base: Name, links: list[Link], lenient: bool, exits: list[int]) -> int:
        variable = self.here.find(base.name)
        if variable is not None:
            self.here.load(variable.slot, at=base.offset)
            return 0
        if base.name in self.assigned or base.name in GIVEN:
            self.here.emit(Op.LOAD_GLOBAL, self.global_name(base.name), at=base.offset)
            return 0
        return self.library(base.name, base.offset, links)

    def root(self, key: str, offset: int, links: list[Link], lenient: bool, exits: list[int]) -> int:
        return self.name(Name(key, offset), links, lenient, exits)

    def global_name(self, name: str) -> int:
        return self.pool.add(GIVEN.get(name, name))

    def library(self, name: str, offset: int, links: list[Link]) -> int:
        first = links[0] if links else None
        full = script_name(name)
        if full in SCRIPT_NAMESPACES and isinstance(first, Member):
            return self.namespace_member(full, first)
        if full in SCRIPT_FUNCTIONS:
            self.here.emit(Op.BUILTIN, self.pool.add(full), at=offset)
        elif full in SCRIPT_NAMESPACES:
            self.fail("TypeError", f"'{name}' is not a value: write {full}.something(…)", offset)
        else:
            self.here.emit(Op.LOAD_GLOBAL, self.pool.add(name), at=offset)
        return 0

    def namespace_member(self, namespace: str, member: Member) -> int:
        full = f"{namespace}.{member.name}"
        if full in SCRIPT_CONSTANTS:
            self.here.emit(Op.CONSTANT, self.pool.add(SCRIPT_CONSTANTS[full]), at=member.offset)
        elif full in SCRIPT_FUNCTIONS:
            self.here.emit(Op.BUILTIN, self.pool.add(full), at=member.offset)
        else:
            known = [name for name in SCRIPT_FUNCTIONS if name.startswith(f"{namespace}.")]
            close = difflib.get_close_matches(full, known, 1)
            hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known[:12])}"
            self.fail("PROPERTY_NOT_FOUND", f"there is no {full}{hint}", member.offset)
        return 1

    # places

    def chain(self, chain: Chain, lenient: bool) -> None:
        mutator = self.mutator_of(chain)
        if mutator is None:
            super().chain(chain, lenient=False)
            return
        exits: list[int] = []
        links = list(chain.links)
        self.mutation(chain, mutator, exits)
        position = mutator + 2
        while position < len(links):
            position = self.link(chain, links, position, self.tolerates(links, position), exits)
        self.here.land(*exits)

    def mutator_of(self, chain: Chain) -> int | None:
        """Return the position of the first link that calls a mutator on a place: only names and indexes lead to it."""
        if not isinstance(chain.base, (Name, Root)) or not self.is_variable(chain.base):
            return None
        for position, link in enumerate(chain.links[:-1]):
            if isinstance(link, Call):
                return None
            if isinstance(link, Member) and isinstance(chain.links[position + 1], Call):
                return position if link.name in MUTATORS else None
        return None

    def is_variable(self, base: Name | Root) -> bool:
        name = base.name if isinstance(base, Name) else base.key
        return self.here.find(name) is not None or name in self.assigned or not is_library_name(name)

    def mutation(self, chain: Chain, position: int, exits: list[int]) -> None:
        """Compile keys, arguments, then the call."""
        links = chain.links[: position + 2]
        if any(not isinstance(link, Call) and link.optional for link in links):
            with self.hidden_keys(links) as plain:
                self.look_ahead(chain, [*plain, *chain.links[position + 2 :]], position, exits)
                self.mutate(chain.base, plain)
        else:
            self.mutate(chain.base, links)

    def mutate(self, base: Node, links: Sequence[Link]) -> None:
        *path, member, call = links
        place = self.place(base, path, cast(Member, member).name)
        count = self.arguments(cast(Call, call))
        self.here.emit(Op.MUTATE, count, place, at=member.offset)

    @contextmanager
    def hidden_keys(self, links: Sequence[Link]) -> Iterator[list[Link]]:
        """Yield the same links with their keys evaluated once, into hidden variables."""
        here = self.here
        mark = here.open_scope([(f"{HIDDEN}{number}", False) for number in range(len(links))])
        plain: list[Link] = []
        for number, link in enumerate(links):
            if isinstance(link, Index) and not isinstance(link.index, Literal):
                key = Name(f"{HIDDEN}{number}", link.offset)
                self.node(link.index)
                here.store(here.visible[-1][key.name].slot, at=link.offset)
                plain.append(Index(key, link.optional, link.offset, 1))
            else:
                plain.append(link)
        yield plain
        here.close_scope(mark)

    def look_ahead(self, chain: Chain, links: list[Link], position: int, exits: list[int]) -> None:
        """Read a path with ``?.`` first, to check whether there is anything to change."""
        start = self.base(chain.base, links, False, exits)
        while start < position:
            start = self.link(chain, links, start, self.tolerates(links, start), exits)
        member = cast(Member, links[position])
        exits.append(self.here.emit(Op.CHECK_METHOD, self.pool.add(member.name), at=member.offset))
        self.here.emit(Op.DROP, at=member.offset)

    def place(self, base: Node, links: Sequence[Link], method: str = "") -> int:
        """Compile the keys that are not constant onto the stack; return the place's number."""
        found: list[str | None] = []
        for link in links:
            if isinstance(link, Member):
                found.append(link.name)
            elif isinstance(link, Index):
                self.node(link.index)
                found.append(None)
        root, index = self.place_root(base)
        self.places.append(Place(root, index, tuple(found), method))
        return len(self.places) - 1

    def place_root(self, base: Node) -> tuple[int, int]:
        name = base.name if isinstance(base, Name) else base.key if isinstance(base, Root) else ""
        variable = self.here.find(name)
        if variable is None:
            return GLOBAL, self.global_name(name)
        return (SLOT, variable.slot) if variable.slot >= 0 else (CAPTURED, -variable.slot - 1)
