"""Flight: the rows of one unfinished execution, as a commit works on them."""

from __future__ import annotations

from typing import Any

from dalsegno.core.settlement import (
    BarrierRow,
    ExecutionRow,
    GateRow,
    Kept,
    MachineRow,
    ScopeRow,
    SignalRow,
    TokenRow,
)

RARE = {
    "scopes": dict,
    "barriers": dict,
    "gates": dict,
    "slots": set,
    "left": set,
    "inbox": dict,
    "mailbox": dict,
}
"""Rare attributes of a flight: created on first access, and filled, never replaced. Thousands of flights are in
work at once, most of them without these.
"""


NONE: frozenset[str] = frozenset()
MOST_COMPLETIONS = 100
"""Most completions of a script whose inbox is cached: thousands of scripts are."""


class Flight:
    """Row objects are created when the rules ask for them; stored rows are in ``LoadedRows``."""

    __slots__ = (
        "_made",
        "is_new",
        "machine",
        "moved_away",
        "number",
        "row",
        "seen_at",
        "spawned",
        "was_stopped",
        "tokens",
        "version",
        *RARE,
    )

    scopes: dict[str, ScopeRow]
    barriers: dict[str, BarrierRow]
    gates: dict[str, GateRow]
    slots: set[tuple[str, int]]
    left: set[str]
    inbox: dict[int, Kept]
    mailbox: dict[str, SignalRow]

    def __init__(self, number: int, row: ExecutionRow, version: int = 0, *, is_new: bool = False) -> None:
        self.number = number
        self.row = row
        self.version = version
        """The version of which the rows here are known."""
        self.seen_at = row.touched_at
        """When it was last touched, as of that version."""
        self.is_new = is_new
        """All its rows come from this commit: a row that is not here does not exist."""
        self.tokens: dict[str, TokenRow] = {}
        self.spawned: dict[str, int] = {}
        """Tokens that are not stored yet, with their spawn order."""
        self.moved_away: set[str] | frozenset[str] = NONE
        """Tokens that moved to another execution."""
        self.machine: MachineRow | None = None
        """Without its snapshot, unless that is about to be written. ``inbox`` is complete if this is set."""
        self.was_stopped = row.state != "RUNNING"
        """The stored state is not RUNNING: a change to RUNNING must then write the state."""
        self._made: tuple[str, ...] = ()
        """The rare attributes that exist."""

    def __getattr__(self, name: str) -> Any:
        """Create a rare attribute; called only for missing ones."""
        if name not in RARE:
            raise AttributeError(name)
        made = RARE[name]()
        setattr(self, name, made)
        self._made += (name,)
        return made

    def mark_stored(self) -> None:
        """Mark the changes as stored, and keep only what the next step may need."""
        self.tokens = {name: token for name, token in self.tokens.items() if token.state == "leased"}
        self.spawned.clear()
        self.moved_away = NONE
        kept = self._trim_machine()
        if self._made:
            for name in self._made:
                if name not in kept:
                    delattr(self, name)
            self._made = kept
        self.is_new = False
        self.seen_at = self.row.touched_at
        self.was_stopped = self.row.state != "RUNNING"

    def _trim_machine(self) -> tuple[str, ...]:
        """Drop the machine's snapshot, which is large, and its inbox if it is large; return what is kept with it."""
        if self.machine is None:
            return ()
        if len(self.inbox) > MOST_COMPLETIONS:
            self.machine = None
            return ()
        self.machine.snapshot = None
        return ("inbox",)

    def only_counts(self) -> bool:
        """Return True if only its counters have changed."""
        return self.row.state == "RUNNING" and not self.was_stopped

    def has_just_ended(self) -> bool:
        """Return True if its stored state was running, and it has ended."""
        return self.row.ended_at is not None and not self.was_stopped
