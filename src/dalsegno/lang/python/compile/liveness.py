"""Liveness analysis: variables that are read later before they are written. Only those are part of a snapshot."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.lang.python.compile.assembler import Emitted, Region
from dalsegno.lang.python.opcodes import Op

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
