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
"""Of a flight: made when they are first asked for, and filled, never replaced. Thousands of flights are worked on at
once, most of them without."""


NONE: frozenset[str] = frozenset()
MOST_COMPLETIONS = 100
"""Of a script whose inbox is remembered: thousands of scripts are."""


class Flight:
    """Row objects exist once the rules have asked for them; what is stored is in ``Loaded``."""

    __slots__ = (
        "_made",
        "born_here",
        "machine",
        "moved_away",
        "number",
        "row",
        "seen_at",
        "spawned",
        "stands",
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

    def __init__(self, number: int, row: ExecutionRow, version: int = 0, *, born_here: bool = False) -> None:
        self.number = number
        self.row = row
        self.version = version
        """As of which the rows here are known."""
        self.seen_at = row.touched_at
        """When it was touched last, as of that version."""
        self.born_here = born_here
        """Whether all its rows came from this commit: what is not here does not exist."""
        self.tokens: dict[str, TokenRow] = {}
        self.spawned: dict[str, int] = {}
        """Tokens that are not stored yet, and in which order they came."""
        self.moved_away: set[str] | frozenset[str] = NONE
        """Tokens that went to another execution."""
        self.machine: MachineRow | None = None
        """Without its snapshot, unless that is about to be written. ``inbox`` is whole if this is here."""
        self.stands = row.state != "RUNNING"
        """As stored: whatever sets it going must write the state although the row reads RUNNING."""
        self._made: tuple[str, ...] = ()
        """Which of the rare ones there are."""

    def __getattr__(self, name: str) -> Any:
        """Only asked for what is not there."""
        if name not in RARE:
            raise AttributeError(name)
        made = RARE[name]()
        setattr(self, name, made)
        self._made += (name,)
        return made

    def settle_down(self) -> None:
        """Its changes are stored. What is remembered of it beyond them is what the next step may ask for."""
        self.tokens = {name: token for name, token in self.tokens.items() if token.state == "leased"}
        self.spawned.clear()
        self.moved_away = NONE
        kept = self._put_machine_away()
        if self._made:
            for name in self._made:
                if name not in kept:
                    delattr(self, name)
            self._made = kept
        self.born_here = False
        self.seen_at = self.row.touched_at
        self.stands = self.row.state != "RUNNING"

    def _put_machine_away(self) -> tuple[str, ...]:
        """Without its snapshot, which is large, and with its inbox, unless that is. Returns what is kept with it."""
        if self.machine is None:
            return ()
        if len(self.inbox) > MOST_COMPLETIONS:
            self.machine = None
            return ()
        self.machine.snapshot = None
        return ("inbox",)

    def goes_on(self) -> bool:
        """Whether only its counters have changed."""
        return self.row.state == "RUNNING" and not self.stands

    def has_just_ended(self) -> bool:
        """Whether it was running as stored, and has ended."""
        return self.row.ended_at is not None and not self.stands
