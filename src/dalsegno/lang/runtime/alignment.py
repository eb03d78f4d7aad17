"""Finds for a place of one version of a program the same place of another version.

Both versions are trees of *sites*: leaves are the awaits and calls at which a frame may wait; the others are the blocks
around them (functions, loops, branches, ``try``). Two lists of siblings are aligned by an exact longest common
subsequence, weighted by likeness. A site's counterpart must be the same in every best alignment; otherwise it is
doubtful, and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from msgspec import Struct

AWAIT = 10
"""The weight of an await in an alignment; blocks and calls count less."""

FUNCTION = "function"
"""The kind of a site that is a function. Labels are unique inside of it."""


class Site(Struct, frozen=True, eq=False):
    """A place of a program, or a block of places."""

    kind: str
    key: Any
    """What it is, apart from details: an await's callee, a loop's sort, a function's name."""
    line: int
    detail: Any = None
    """All of it except its position: the awaited expression, a loop's subject."""
    label: str | None = None
    place: int = -1
    """An offset in the source, or the number of an instruction."""
    number: int = -1
    """Of a function."""
    keeps_state: bool = False
    """True for a block that a waiting frame keeps state of, such as a loop's iterator."""
    weight: int = AWAIT
    children: tuple[Site, ...] = ()


Path: TypeAlias = tuple[Site, ...]
"""A site with all sites around it, the whole program first."""


class Doubt(Struct, frozen=True):
    """Why a site has no counterpart."""

    site: Site
    candidates: tuple[Site, ...] = ()
    """The sites that are equally like it; none if there is nothing like it."""
    is_elsewhere: bool = False
    """True if the only candidates are in other places than the alignment gives."""


def paths(root: Site) -> Iterator[Path]:
    """Yield every site with those around it, in order."""
    pending: list[Path] = [(root,)]
    while pending:
        path = pending.pop()
        yield path
        pending.extend((*path, child) for child in reversed(path[-1].children))


def function_of(path: Path) -> int:
    """Return the number of the innermost function around a site."""
    return next(site.number for site in reversed(path) if site.kind == FUNCTION)


def function_path(root: Site, number: int) -> Path | None:
    """Return the site of a function with those around it."""
    return next(
        (path for path in paths(root) if path[-1].kind == FUNCTION and path[-1].number == number), None
    )


class Alignment:
    """The alignment of two versions of a program."""

    def __init__(self, old: Site, new: Site) -> None:
        self.old = old
        self.new = new
        self._likeness: dict[tuple[int, int], int] = {}
        self._tables: dict[tuple[int, int], _Table] = {}

    def counterpart(self, path: Path) -> Path | Doubt:
        """Return the counterpart of a site: the one with its label, else by the alignment."""
        leaf = path[-1]
        if leaf.label is not None:
            found = self._labelled(path)
            if found is not None:
                return found
        return self._aligned(path)

    def _labelled(self, path: Path) -> Path | None:
        found = [
            other
            for other in paths(self.new)
            if other[-1].label == path[-1].label
            and other[-1].kind == path[-1].kind
            and _home(other) == _home(path)
        ]
        return found[0] if len(found) == 1 else None

    def _aligned(self, path: Path) -> Path | Doubt:
        """Return the counterpart by alignment, if nothing in other blocks of the new version is as much like it."""
        found = self._plainly_aligned(path)
        if isinstance(found, Doubt) or path[-1].weight < AWAIT:
            return found
        twins = [other for other in _twins(path[-1], self.new) if other[-1] is not found[-1]]
        if path[-1].detail == found[-1].detail:
            taken = self._counterparts_of_twins(path)
            twins = [other for other in twins if other[-2] is not found[-2] and id(other[-1]) not in taken]
        return (
            Doubt(path[-1], (found[-1], *(other[-1] for other in twins)), is_elsewhere=True)
            if twins
            else found
        )

    def _plainly_aligned(self, path: Path) -> Path | Doubt:
        new: Path = (self.new,)
        for outer, inner in pairwise(path):
            partners = self._table(outer, new[-1]).partners(outer.children.index(inner))
            if len(partners) != 1 or None in partners:
                candidates = tuple(
                    new[-1].children[at] for at in sorted(p for p in partners if p is not None)
                )
                return Doubt(path[-1], candidates if inner is path[-1] else ())
            (at,) = partners
            new = (*new, new[-1].children[at or 0])
        return new

    def _counterparts_of_twins(self, path: Path) -> set[int]:
        """Return the counterparts of the sites of the old version that are exactly like this one."""
        found = [
            self._plainly_aligned(other) for other in _twins(path[-1], self.old) if other[-1] is not path[-1]
        ]
        return {id(other[-1]) for other in found if not isinstance(other, Doubt)}

    def like(self, old: Site, new: Site) -> int:
        """Return the likeness of two sites; 0 if they cannot be the same."""
        pair = (id(old), id(new))
        found = self._likeness.get(pair)
        if found is None:
            found = self._likeness[pair] = self._compare(old, new)
        return found

    def _compare(self, old: Site, new: Site) -> int:
        if old.label is not None and new.label is not None:
            return 4 * AWAIT if old.label == new.label and old.kind == new.kind else 0
        if old.kind != new.kind or old.key != new.key:
            return 0
        own = max(1, old.weight)
        if old.detail == new.detail:
            own *= 2
        return own + self._table(old, new).best

    def _table(self, old: Site, new: Site) -> _Table:
        pair = (id(old), id(new))
        found = self._tables.get(pair)
        if found is None:
            found = self._tables[pair] = _Table(self, old.children, new.children)
        return found


class _Table:
    """The alignment of two lists of siblings: the best totals of all their beginnings and of all their ends."""

    def __init__(self, alignment: Alignment, old: Sequence[Site], new: Sequence[Site]) -> None:
        self.count = len(new)
        self.like = [[alignment.like(one, other) for other in new] for one in old]
        self.before = _totals(self.like, len(new))
        backwards = [row[::-1] for row in self.like[::-1]]
        self.after = [row[::-1] for row in _totals(backwards, len(new))[::-1]]
        self.best = self.before[-1][-1]

    def partners(self, at: int) -> set[int | None]:
        """Return the positions that a site has in the best alignments; None where it has none."""
        before, after, like = self.before[at], self.after[at + 1], self.like[at]
        found: set[int | None] = {
            other
            for other in range(self.count)
            if like[other] and before[other] + like[other] + after[other + 1] == self.best
        }
        if any(before[other] + after[other] == self.best for other in range(self.count + 1)):
            found.add(None)
        return found


def _totals(like: list[list[int]], count: int) -> list[list[int]]:
    """Return the best total for every pair of beginnings."""
    table = [[0] * (count + 1)]
    for row in like:
        last = table[-1]
        totals = [0]
        for at, own in enumerate(row):
            total = max(last[at + 1], totals[at])
            totals.append(max(total, last[at] + own) if own else total)
        table.append(totals)
    return table


def _home(path: Path) -> list[Any]:
    """Return the functions around a site."""
    return [site.key for site in path if site.kind == FUNCTION]


def _twins(leaf: Site, root: Site) -> list[Path]:
    """Return the sites that are exactly like one of either version, wherever they are."""
    return [
        path
        for path in paths(root)
        if (path[-1].kind, path[-1].key, path[-1].detail) == (leaf.kind, leaf.key, leaf.detail)
    ]
