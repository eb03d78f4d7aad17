"""Flight: the rows of one unfinished execution, as the workspace caches them."""

from __future__ import annotations

from dalsegno.core.settlement import (
    BarrierRow,
    ExecutionRow,
    GateRow,
    Kept,
    MachineRow,
    ScopeRow,
    TokenRow,
)


class Flight:
    """The cached rows of one unfinished execution.

    A row that is here equals the stored one, or is about to be written; one that is not may still
    be stored.
    """

    __slots__ = (
        "barriers",
        "gates",
        "inbox",
        "is_new",
        "left",
        "machine",
        "number",
        "numbers",
        "row",
        "scopes",
        "tokens",
        "was_stopped",
    )

    def __init__(self, number: int, row: ExecutionRow, *, is_new: bool = False) -> None:
        self.is_new = is_new
        """All its rows come from this workspace: a barrier, gate or left context that is not here
        does not exist.
        """
        self.number = number
        self.row = row
        self.tokens: dict[str, TokenRow] = {}
        self.numbers: dict[str, int] = {}
        """Numbers of the tokens, by id."""
        self.scopes: dict[str, ScopeRow] = {}
        self.barriers: dict[str, BarrierRow] = {}
        self.gates: dict[str, GateRow] = {}
        self.left: set[str] = set()
        """Scopes in which a branch is known to have left something."""
        self.was_stopped = row.state != "RUNNING"
        """The stored state is not RUNNING: a change to RUNNING must then write the state."""
        self.machine: MachineRow | None = None
        """Without its snapshot, unless that is about to be written."""
        self.inbox: dict[int, Kept] = {}
        """Completions by promise; complete if there are as many as the machine's row says."""

    def forget_token(self, token: str) -> None:
        self.tokens.pop(token, None)
        self.numbers.pop(token, None)
