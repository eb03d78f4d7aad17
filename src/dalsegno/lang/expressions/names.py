"""The names that expressions of one graph may start with, and the lookup of a spelling's root.

A root key is a node id, or one of `SPECIAL_ROOTS`. Building is linear in the number of nodes; a lookup tries a handful
of substrings, however many nodes there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

SPECIAL_ROOTS = frozenset({"$trigger", "$item", "$index", "$json", "$execution"})
NODE_ROOT = "$node"
_SPECIAL_SPELLINGS = {
    "trigger": "$trigger",
    "input": "$trigger",
    "item": "$item",
    "index": "$index",
    "json": "$json",
    "execution": "$execution",
    "node": NODE_ROOT,
}
BARE_SPECIALS = {"input": "$trigger", "trigger": "$trigger"}

_WORD = re.compile(r"\w+")
_HYPHENATED = re.compile(r"\w+(?:-\w+)*")


class _Lengths:
    """The lengths of spellings to try, so that the cost of a lookup does not depend on the number of spellings."""

    __slots__ = ("longest", "odd")

    def __init__(self, spellings: Iterable[str]) -> None:
        self.longest = max(map(len, spellings), default=0)
        self.odd = _odd_lengths(spellings)


def _odd_lengths(spellings: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return lengths of spellings that no `_HYPHENATED` run covers (spaces, dots …), longest first, by first word."""
    lengths: dict[str, set[int]] = {}
    for spelling in spellings:
        if not _HYPHENATED.fullmatch(spelling):
            word = _WORD.match(spelling)
            lengths.setdefault(word.group() if word else "", set()).add(len(spelling))
    return {word: tuple(sorted(found, reverse=True)) for word, found in lengths.items()}


def _ends_at_boundary(source: str, end: int) -> bool:
    return end >= len(source) or not (source[end].isalnum() or source[end] == "_")


def _longest(source: str, start: int, known: Mapping[str, str], lengths: _Lengths) -> int:
    """Return the end of the longest known spelling that starts at ``start`` and ends at a word's end, or -1."""
    best, odd = -1, lengths.odd
    limit = start + lengths.longest
    run = _HYPHENATED.match(source, start, limit + 1)
    end = run.end() if run else start
    if end > limit:
        end = source.rfind("-", start, end)
    while end > start:
        if source[start:end] in known:
            best = end
            break
        end = source.rfind("-", start, end)
    if odd:
        word = _WORD.match(source, start)
        for length in odd.get(word.group() if word else "", ()):
            end = start + length
            if end <= best:
                break
            if source[start:end] in known and _ends_at_boundary(source, end):
                return end
    return best


@dataclass(frozen=True, slots=True)
class RootNames:
    """Known roots of a graph. Create one with `RootNames.of`, and share it: compiled sources are cached on it."""

    ids: Mapping[str, str]
    """Node id → root key: the id itself, or ``$trigger`` for a node that represents the start payload."""
    names: Mapping[str, str]
    """Node name → root key."""
    variables: frozenset[str] = frozenset()
    cache: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    _id_lengths: _Lengths = field(init=False, compare=False, repr=False)
    _name_lengths: _Lengths = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_id_lengths", _Lengths(self.ids))
        object.__setattr__(self, "_name_lengths", _Lengths(self.names))

    @classmethod
    def of(
        cls, nodes: Iterable[str | tuple[str, str | None]] = (), *, variables: Iterable[str] = ()
    ) -> RootNames:
        """Create names from node ids, or pairs of id and name; of two nodes with one name the first keeps it."""
        ids: dict[str, str] = {}
        names: dict[str, str] = {}
        for node in nodes:
            identifier, name = (node, None) if isinstance(node, str) else node
            ids[identifier] = identifier
            if name:
                names.setdefault(name, identifier)
        return cls(ids, names, frozenset(variables))

    def with_variables(self, *variables: str) -> RootNames:
        """Return the same roots plus plain variables that evaluation will provide.

        An example is ``item`` and ``index`` of a list node.
        """
        return replace(self, variables=self.variables | set(variables))

    def find(self, source: str, start: int) -> tuple[str, int] | None:
        """Return root key and end of the root spelled at ``start`` (after the ``$``): ids, then specials, then names.

        ``node.http-1`` is the node ``http-1``; `NODE_ROOT` is found only if no known node follows after a dot.
        """
        found = self._find_id(source, start)
        if found is not None:
            return found
        word = _WORD.match(source, start)
        if word and word.group() in _SPECIAL_SPELLINGS:
            special, end = _SPECIAL_SPELLINGS[word.group()], word.end()
            if special == NODE_ROOT and source.startswith(".", end):
                found = self._find_id(source, end + 1) or self._find_name(source, end + 1)
            return found or (special, end)
        return self._find_name(source, start)

    def _find_id(self, source: str, start: int) -> tuple[str, int] | None:
        end = _longest(source, start, self.ids, self._id_lengths)
        return (self.ids[source[start:end]], end) if end >= 0 else None

    def _find_name(self, source: str, start: int) -> tuple[str, int] | None:
        end = _longest(source, start, self.names, self._name_lengths)
        return (self.names[source[start:end]], end) if end >= 0 else None

    def resolve(self, name: str) -> str | None:
        """Return the root key of a whole spelling without ``$``: the meaning of ``$node["…"]`` and of bare words."""
        return self.ids.get(name) or self.names.get(name)


def skips_output(root: str) -> bool:
    """Return whether ``root.output.x`` may mean ``root.x``: for nodes and for the trigger."""
    return root == "$trigger" or root not in SPECIAL_ROOTS
