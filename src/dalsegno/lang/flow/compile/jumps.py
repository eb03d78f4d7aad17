"""Targets of ``break``, ``continue`` and ``return``: out of loops, and through the ``finally`` blocks on the way.

A ``finally`` block is compiled once. Before entering it, the code stores in a hidden variable how to continue
afterwards: at its end (0), by throwing again (1), or by one of the exits that were taken through it (2, 3 …).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

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
