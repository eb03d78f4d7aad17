"""Blocks and the names that they declare, branches, loops and ``try``, and the exits from them.

A ``finally`` block is compiled once. Before entering it, the code stores in a hidden variable how to continue
afterwards: at its end (0), by throwing again (1), or by one of the exits that were taken through it (2, 3 …).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from dalsegno.lang.expressions.syntax.tree import (
    Arrow,
    Block,
    Declaration,
    For,
    ForEach,
    Function,
    If,
    ListPattern,
    NamePattern,
    ObjectPattern,
    Pattern,
    Return,
    Statement,
    Try,
    While,
)
from dalsegno.lang.flow.compile.expressions import ScriptExpressions
from dalsegno.lang.flow.runtime.instructions import OVER_ITEMS, OVER_KEYS
from dalsegno.lang.runtime.code import Op, ProtectedRange
from dalsegno.lang.runtime.instructions import BINARY_NAMES

_EQUAL = BINARY_NAMES.index("==")

Exit: TypeAlias = Literal["break", "continue", "return"]

AT_ITS_END, BY_THROWING, FIRST_EXIT = 0, 1, 2


@dataclass(slots=True)
class Loop:
    """A loop being compiled: the jumps to its end, and those to its next turn."""

    breaks: list[int] = field(default_factory=list)
    continues: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Cleanup:
    """A ``try`` with a ``finally`` being compiled; ``mode`` and ``value`` are the slots of its hidden variables."""

    mode: int
    value: int
    entries: list[int] = field(default_factory=list)
    """Jumps to the block."""
    exits: list[Exit] = field(default_factory=list)

    def number_of(self, exit_kind: Exit) -> int:
        if exit_kind not in self.exits:
            self.exits.append(exit_kind)
        return FIRST_EXIT + self.exits.index(exit_kind)


Context: TypeAlias = Loop | Cleanup


class Branching(ScriptExpressions):
    """The part of the script compiler that handles control flow."""

    def __init__(self, source: str, assigned: frozenset[str] = frozenset()) -> None:
        super().__init__(source)
        self.assigned = assigned
        self.implicit: set[str] = set()
        """Names that are assigned without a declaration in scope."""
        self.contexts: list[Context] = []
        self.returns: list[tuple[int, int]] = []
        """Jumps of the main function to its end outside of any ``try``, with their offsets in the source."""

    @abstractmethod
    def statement(self, statement: Statement) -> None: ...

    @abstractmethod
    def hoist(self, functions: Iterable[Function]) -> None: ...

    @abstractmethod
    def rebind(self, pattern: NamePattern) -> None: ...

    # blocks

    @contextmanager
    def scope(
        self, names: Sequence[tuple[str | None, bool]], offset: int, prepare: bool = True
    ) -> Iterator[int]:
        """Open a scope whose variables are created again on each entry; yield the first one's slot."""
        here = self.here
        mark = here.open_scope(names)
        if prepare:
            here.prepare_scope(mark, at=offset)
        yield here.scopes[mark].first
        here.close_scope(mark)

    def block(self, block: Block) -> None:
        with self.scope(declared_names(block.body), block.offset):
            self.hoist(functions_of(block))
            for statement in block.body:
                self.statement(statement)

    def function_body(self, node: Arrow) -> None:
        outer, self.contexts = self.contexts, []
        if isinstance(node.body, Block):
            self.block(node.body)
            self.here.emit(Op.CONSTANT, self.pool.add(None), at=node.body.offset)
            self.here.emit(Op.RETURN, at=node.body.offset)
        else:
            super().function_body(node)
        self.contexts = outer

    def if_else(self, statement: If) -> None:
        """Compile a chain of ``else if`` in a loop, so that a long chain does not recurse deeply."""
        here = self.here
        ends: list[int] = []
        branch: Block | None = None
        while True:
            self.node(statement.test)
            otherwise = here.emit(Op.JUMP_IF_FALSE, at=statement.offset)
            self.block(statement.then)
            branch = statement.otherwise
            if branch is None:
                here.land(otherwise)
                break
            ends.append(here.emit(Op.JUMP, at=statement.offset))
            here.land(otherwise)
            if len(branch.body) != 1 or not isinstance(branch.body[0], If):
                self.block(branch)
                break
            statement = branch.body[0]
        here.land(*ends)

    # loops

    def repeating(self, statement: While) -> None:
        here, loop = self.here, Loop()
        top = here.position
        self.node(statement.test)
        loop.breaks.append(here.emit(Op.JUMP_IF_FALSE, at=statement.offset))
        self.loop_body(loop, statement.body)
        here.land(*loop.continues)
        here.emit(Op.JUMP, 0, top, at=statement.offset)
        here.land(*loop.breaks)

    def loop_body(self, loop: Loop, body: Block) -> None:
        self.contexts.append(loop)
        self.block(body)
        self.contexts.pop()

    def for_each(self, statement: ForEach) -> None:
        here, loop, at = self.here, Loop(), statement.offset
        self.node(statement.subject)
        with self.scope([(None, False)], at, prepare=False) as iteration:
            here.emit(Op.ITERATE, iteration, OVER_KEYS if statement.over == "in" else OVER_ITEMS, at=at)
            top = here.emit(Op.NEXT, iteration, at=at)
            constant = statement.declares == "const"
            names = pattern_names(statement.pattern) if statement.declares else ()
            with self.scope([(name, constant) for name in names], at):
                self.take_apart(statement.pattern, self.bind if statement.declares else self.rebind)
                self.loop_body(loop, statement.body)
            here.land(*loop.continues)
            here.emit(Op.JUMP, 0, top, at=at)
            here.land(top, *loop.breaks)

    def counting(self, statement: For) -> None:
        """Compile ``for``.

        Each turn has its own variables: closures made in one turn do not see the next one's step.
        """
        here, loop, at = self.here, Loop(), statement.offset
        names = declared_names(statement.init)
        with self.scope(names, at) as first:
            for part in statement.init:
                self.statement(part)
            top = here.position
            if statement.test is not None:
                self.node(statement.test)
                loop.breaks.append(here.emit(Op.JUMP_IF_FALSE, at=at))
            self.loop_body(loop, statement.body)
            here.land(*loop.continues)
            if any(slot in here.boxed for slot in range(first, first + len(names))):
                here.emit(Op.RENEW, first, first + len(names), at=at)
            for part in statement.step:
                self.statement(part)
            here.emit(Op.JUMP, 0, top, at=at)
            here.land(*loop.breaks)

    # exits

    def returning(self, statement: Return) -> None:
        if statement.value is None:
            self.here.emit(Op.CONSTANT, self.pool.add(None), at=statement.offset)
        else:
            self.node(statement.value)
        self.leave("return", statement.offset)

    def leave(self, exit_kind: Exit, at: int) -> None:
        """Compile an exit; the value of a ``return`` is on the stack."""
        here = self.here
        for context in reversed(self.contexts):
            if isinstance(context, Cleanup):
                if exit_kind == "return":
                    here.store(context.value, at=at)
                self.enter_cleanup(context, context.number_of(exit_kind), at)
                return
            if exit_kind != "return":
                jumps = context.breaks if exit_kind == "break" else context.continues
                jumps.append(here.emit(Op.JUMP, at=at))
                return
        if exit_kind != "return":
            self.fail("TypeError", f"'{exit_kind}' is outside of a loop", at)
        elif here.parent is None:
            self.returns.append((here.emit(Op.JUMP, at=at), at))
        else:
            here.emit(Op.RETURN, at=at)

    def enter_cleanup(self, cleanup: Cleanup, mode: int, at: int) -> None:
        self.here.emit(Op.CONSTANT, self.pool.add(mode), at=at)
        self.here.store(cleanup.mode, at=at)
        cleanup.entries.append(self.here.emit(Op.JUMP, at=at))

    # try

    def trying(self, statement: Try) -> None:
        if statement.cleanup is None:
            self.catching(statement)
            return
        here, at = self.here, statement.offset
        with self.scope([(None, False), (None, False)], at) as first:
            cleanup = Cleanup(first, first + 1)
            self.contexts.append(cleanup)
            start = here.position
            self.catching(statement)
            stop = here.position
            self.contexts.pop()
            self.enter_cleanup(cleanup, AT_ITS_END, at)
            here.protected_ranges.append(ProtectedRange(start, stop, here.position))
            here.store(cleanup.value, at=at)
            here.emit(Op.CONSTANT, self.pool.add(BY_THROWING), at=at)
            here.store(cleanup.mode, at=at)
            here.land(*cleanup.entries)
            self.block(statement.cleanup)
            self.resume_pending(cleanup, at)

    def resume_pending(self, cleanup: Cleanup, at: int) -> None:
        """Continue after a ``finally`` block with the action that was pending when it was entered."""
        here = self.here
        after = self.unless_mode(cleanup, BY_THROWING, at)
        here.load(cleanup.value, at=at)
        here.emit(Op.THROW, at=at)
        here.land(after)
        for number, exit_kind in enumerate(cleanup.exits, FIRST_EXIT):
            after = self.unless_mode(cleanup, number, at)
            if exit_kind == "return":
                here.load(cleanup.value, at=at)
            self.leave(exit_kind, at)
            here.land(after)

    def unless_mode(self, cleanup: Cleanup, mode: int, at: int) -> int:
        self.here.load(cleanup.mode, at=at)
        self.here.emit(Op.CONSTANT, self.pool.add(mode), at=at)
        self.here.emit(Op.BINARY, _EQUAL, at=at)
        return self.here.emit(Op.JUMP_IF_FALSE, at=at)

    def catching(self, statement: Try) -> None:
        """Compile the body, and the handler if there is one."""
        here, handler = self.here, statement.handler
        start = here.position
        self.block(statement.body)
        if handler is None:
            return
        done = here.emit(Op.JUMP, at=statement.offset)
        here.protected_ranges.append(ProtectedRange(start, done, here.position))
        names = pattern_names(statement.caught) if statement.caught is not None else ()
        with self.scope([(name, False) for name in names], handler.offset):
            if statement.caught is None:
                here.emit(Op.DROP, at=handler.offset)
            else:
                self.take_apart(statement.caught, self.bind)
            self.block(handler)
        here.land(done)


# -- the names that blocks declare, and the names that a program assigns without a declaration ---------------


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
