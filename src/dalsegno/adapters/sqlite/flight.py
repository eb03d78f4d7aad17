"""Flight: the cached rows of one unfinished execution."""

from __future__ import annotations

from dalsegno.core.settlement import BarrierRow, ExecutionRow, GateRow, Kept, MachineRow, ScopeRow, TokenRow


class Flight:
    """A row that is here equals the stored one, or is about to be written; one that is not may still be stored."""

    __slots__ = (
        "barriers",
        "born_here",
        "gates",
        "inbox",
        "left",
        "machine",
        "number",
        "numbers",
        "row",
        "scopes",
        "stands",
        "tokens",
    )

    def __init__(self, number: int, row: ExecutionRow, *, born_here: bool = False) -> None:
        self.born_here = born_here
        """Whether all its rows came from this workspace: a barrier, gate or left context not here does not exist."""
        self.number = number
        self.row = row
        self.tokens: dict[str, TokenRow] = {}
        self.numbers: dict[str, int] = {}
        """Numbers of the tokens, by id."""
        self.scopes: dict[str, ScopeRow] = {}
        self.barriers: dict[str, BarrierRow] = {}
        self.gates: dict[str, GateRow] = {}
        self.left: set[str] = set()
        """Scopes in which something is known to be left."""
        self.stands = row.state != "RUNNING"
        """As stored: whatever sets it going must write the state although the row reads RUNNING."""
        self.machine: MachineRow | None = None
        """Without its snapshot, unless that is about to be written."""
        self.inbox: dict[int, Kept] = {}
        """Completions by promise: all of them, if there are as many as the machine's row says."""

    def forget_token(self, token: str) -> None:
        self.tokens.pop(token, None)
        self.numbers.pop(token, None)
