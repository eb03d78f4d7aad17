"""Flight: the rows of one unfinished execution, as a commit works on them."""

from __future__ import annotations

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


class Flight:
    """Row objects exist once the rules have asked for them; what is stored is in ``Loaded``."""

    __slots__ = (
        "barriers",
        "born_here",
        "gates",
        "inbox",
        "left",
        "machine",
        "mailbox",
        "moved_away",
        "number",
        "row",
        "scopes",
        "slots",
        "spawned",
        "stands",
        "tokens",
        "version",
    )

    def __init__(self, number: int, row: ExecutionRow, version: int = 0, *, born_here: bool = False) -> None:
        self.number = number
        self.row = row
        self.version = version
        """As of which the rows here are known."""
        self.born_here = born_here
        """Whether all its rows came from this commit: what is not here does not exist."""
        self.tokens: dict[str, TokenRow] = {}
        self.spawned: dict[str, int] = {}
        """Tokens that are not stored yet, and in which order they came."""
        self.moved_away: set[str] = set()
        """Tokens that went to another execution."""
        self.scopes: dict[str, ScopeRow] = {}
        self.barriers: dict[str, BarrierRow] = {}
        self.gates: dict[str, GateRow] = {}
        self.slots: set[tuple[str, int]] = set()
        self.left: set[str] = set()
        self.machine: MachineRow | None = None
        """Without its snapshot, unless that is about to be written."""
        self.inbox: dict[int, Kept] = {}
        self.mailbox: dict[str, SignalRow] = {}
        self.stands = row.state != "RUNNING"
        """As stored: whatever sets it going must write the state although the row reads RUNNING."""

    def settle_down(self) -> None:
        """Its changes are stored. What is remembered of it beyond them is what the next step may ask for."""
        self.tokens = {name: token for name, token in self.tokens.items() if token.state == "leased"}
        self.spawned.clear()
        self.moved_away.clear()
        self.scopes.clear()
        self.barriers.clear()
        self.gates.clear()
        self.slots.clear()
        self.left.clear()
        self.machine = None
        self.inbox = {}
        self.mailbox.clear()
        self.born_here = False
        self.stands = self.row.state != "RUNNING"

    def goes_on(self) -> bool:
        """Whether only its counters have changed."""
        return self.row.state == "RUNNING" and not self.stands

    def has_just_ended(self) -> bool:
        """Whether it was running as stored, and has ended."""
        return self.row.ended_at is not None and not self.stands
