"""The blocks that enclose a statement, and the clean-up when a statement leaves them early.

``return``, ``break`` and ``continue`` leave blocks from the inside. The value they carry (None for the last two) is on
top of the stack meanwhile. Each block removes its own values below, runs its ``finally`` and leaves its ``with``.

Liveness analysis: variables that are read later before they are written. Only those are part of a snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from dalsegno.lang.python.code import Op
from dalsegno.lang.python.compile.assembler import Emitted, Guard, Label, Region
from dalsegno.lang.python.compile.expressions import Expressions


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop. ``depth`` is the stack depth after it; ``inside`` is true within its body."""

    again: Label
    end: Label
    depth: int
    inside: int


@dataclass(frozen=True, slots=True)
class Watched:
    """The body of a ``try`` with ``except`` clauses."""

    guard: Guard


@dataclass(frozen=True, slots=True)
class Guarded:
    """A ``try`` with a ``finally`` that begins at ``entry``."""

    entry: Label
    depth: int
    guard: Guard


@dataclass(frozen=True, slots=True)
class Handling:
    """The body of an ``except`` clause; ``name`` is unbound when it ends."""

    name: str | None
    guard: Guard | None
    """Unbinds the name when an exception leaves the body."""


@dataclass(frozen=True, slots=True)
class Finalizing:
    """The body of a ``finally``; above ``depth`` are a payload and the continuation."""

    depth: int


@dataclass(frozen=True, slots=True)
class Managed:
    """The body of a ``with``; its manager is the topmost value at ``depth``."""

    depth: int
    guard: Guard


Block: TypeAlias = Loop | Watched | Guarded | Handling | Finalizing | Managed


@dataclass(slots=True)
class Blocks(Expressions):
    """Tracks the blocks around the statement being compiled, and compiles leaving them."""

    blocks: list[Block] = field(default_factory=list)

    def leave_function(self) -> None:
        """Compile ``return``: the value is on the stack."""
        depth = self.depth - 1
        self._leave(list(reversed(self.blocks)))
        self.emit(Op.RETURN)
        self.depth = depth

    def leave_loop(self, *, again: bool) -> None:
        """Compile ``continue`` or ``break``."""
        depth = self.depth
        inner: list[Block] = []
        for block in reversed(self.blocks):
            if isinstance(block, Loop):
                self.emit(Op.NOTHING)
                self._leave(inner, block, again=again)
                break
            inner.append(block)
        self.depth = depth

    def _leave(self, blocks: list[Block], loop: Loop | None = None, *, again: bool = False) -> None:
        """Leave blocks. Code after a block's own exit is outside of its guard, which is opened again afterwards."""
        handled = self.handled
        for block in blocks:
            self._leave_block(block)
        if loop is not None:
            self.emit(Op.CUT, loop.inside if again else loop.depth)
            self.emit(Op.POP)
            self.emit(Op.JUMP, loop.again if again else loop.end)
        self.handled = handled
        for block in blocks:
            if not isinstance(block, Loop | Finalizing) and block.guard is not None:
                block.guard.start = self.here + (loop is None)  # a RETURN follows

    def _leave_block(self, block: Block) -> None:
        match block:
            case Loop():
                pass
            case Watched(guard):
                self.close(guard)
            case Guarded(entry, depth, guard):
                back = Label()
                self.emit(Op.CUT, depth)
                self.emit(Op.RESUME_AT, back)
                self.close(guard)
                self.emit(Op.JUMP, entry)
                self.place(back, depth + 1)
            case Handling():
                if block.guard is not None:
                    self.close(block.guard)
                self.emit(Op.DONE)
                self.handled -= 1
                if block.name is not None:
                    self.clear(block.name)
            case Finalizing(depth):
                self.emit(Op.CUT, depth)
                self.emit(Op.DONE)
                self.handled -= 1
            case Managed(depth, guard):
                self.emit(Op.CUT, depth)
                self.close(guard)
                self.emit(Op.LEAVE)
            case _:
                assert_never(block)


# -- liveness ------------------------------------------------------------------------------------------------


_NEVER_FALLS_THROUGH = frozenset((Op.JUMP, Op.RETURN, Op.AGAIN, Op.RAISE, Op.END_FINALLY, Op.ESCAPE))
_JUMPS = frozenset(
    (
        Op.JUMP,
        Op.JUMP_IF_FALSE,
        Op.JUMP_IF_TRUE,
        Op.JUMP_IF_NONE,
        Op.FALSE_OR_POP,
        Op.TRUE_OR_POP,
        Op.NEXT,
        Op.MATCHES,
        Op.ESCAPE,
    )
)


def live_variables(
    emitted: Sequence[Emitted], regions: Sequence[Region], variables: Sequence[str]
) -> list[int]:
    """Return a mask per instruction: the variables that are live before it.

    This is a backward analysis, repeated until nothing changes.
    """
    masks = {name: 1 << index for index, name in enumerate(variables)}
    reads = [_mask(one.reads, masks) for one in emitted]
    writes = [_mask(one.writes, masks) for one in emitted]
    followers = _followers(emitted)
    catchers = _catchers(len(emitted), regions)
    live = [0] * len(emitted)
    changed = True
    while changed:
        changed = False
        for index in range(len(emitted) - 1, -1, -1):
            after = 0
            for follower in followers[index]:
                after |= live[follower]
            before = reads[index] | (after & ~writes[index])
            for catcher in catchers[index]:
                before |= live[catcher]  # it may raise before it has written anything
            if before != live[index]:
                live[index] = before
                changed = True
    return live


def _mask(names: frozenset[str], masks: dict[str, int]) -> int:
    mask = 0
    for name in names:
        mask |= masks[name]
    return mask


def _followers(emitted: Sequence[Emitted]) -> list[list[int]]:
    resumptions = [one.resolved()[1] for one in emitted if one.op is Op.RESUME_AT and one.a != -1]
    found = []
    for index, one in enumerate(emitted):
        following = [] if one.op in _NEVER_FALLS_THROUGH else [index + 1]
        if one.op is Op.END_FINALLY:
            following.extend(resumptions)  # over-approximation is safe
        elif one.op in _JUMPS:
            following.append(one.resolved()[1])
        found.append([follower for follower in following if follower < len(emitted)])
    return found


def _catchers(count: int, regions: Sequence[Region]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(count)]
    for region in regions:
        for index in range(region.start, region.stop):
            found[index].append(region.target.position)
    return found
