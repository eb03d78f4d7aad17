"""Loaded: what was read for a commit, as it is stored. Nothing here is ever changed by the rules, so that they can be
applied once more when they turn out to need a row that was not read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from dalsegno.adapters.postgres.store import Row
from dalsegno.adapters.postgres.wanted import Key, Wanted
from dalsegno.core.settlement import BarrierRow, TokenRow
from dalsegno.model.transition import ReadyToken

FLIGHT_COLUMNS = slice(1, 13)
"""Of ``load.locked``: the columns of ExecutionRow."""
NUMBER, ID, STATE, VERSION, MOVED, HAS_LEFT, KEYS, NOW, TOKEN = 0, 1, 2, 13, 14, 15, 16, 17, 18
"""More columns of ``load.locked``; those of the token come last, as in all statements that read tokens."""

TOKEN_ID, TOKEN_SCOPE, TOKEN_LIMIT_KEY, TOKEN_FENCE, TOKEN_BARRIER, TOKEN_NUMBER = 1, 2, 8, 12, 17, 22
"""Columns of a token."""


class NotLoaded(Exception):
    """The rules ask for a row that was not read: it is read, and they begin again."""

    def __init__(self, kind: str, key: Any) -> None:
        self.kind = kind
        self.key = key
        super().__init__(f"{kind} {key}")


class Loaded:
    """None stands for a row that was looked for and does not exist."""

    def __init__(self) -> None:
        self.flights: dict[str, Row] = {}
        self.names: dict[int, str] = {}
        """Ids of the executions by their numbers."""
        self.busy: set[str] = set()
        """Executions that another process holds, or has just created."""
        self.swept: dict[str, Row | None] = {}
        self.created: Collection[str] = ()
        self.fresh: Collection[Key] = ()
        self.tokens: dict[str, dict[str, Row | None]] = {}
        self.scopes: dict[Key, Row | None] = {}
        self.barriers: dict[Key, Row | None] = {}
        self.gates: dict[Key, Row | None] = {}
        self.slots: dict[tuple[str, str, int], bool] = {}
        self.left: dict[Key, bool] = {}
        self.unfinished: set[str] = set()
        self.awaiting: set[Key] = set()
        self.machines: dict[str, Row | None] = {}
        self.signals: dict[Key, Row | None] = {}
        self.waiting_signals: dict[Key, list[Row]] = {}
        self.held_keys: dict[str, list[str]] = {}
        self.heads: dict[str, list[ReadyToken]] = {}
        self.orders: dict[str, bool] = {}
        """Entries of the outbox, and whether they are there."""

    def number(self, execution: str) -> int:
        return int(self.flights[execution][NUMBER])

    def add_token(self, row: Row) -> None:
        """``row``: the columns of a token."""
        self.tokens.setdefault(self.names[row[0]], {})[row[TOKEN_ID]] = row

    def add_locked(self, rows: Sequence[Row], wanted: Wanted) -> Wanted:
        """Takes in what ``load.locked`` brought. Returns what must be read again, because somebody else's commit came
        while it ran."""
        again = Wanted()
        for row in rows:
            execution = row[ID]
            if row[STATE] is None:
                self.busy.add(execution)
                continue
            if execution not in self.flights:
                self.flights[execution] = row
                self.names[row[NUMBER]] = execution
                self.tokens.setdefault(execution, {})
                if row[HAS_LEFT] is not None and not row[MOVED]:
                    self.left[execution, ""] = row[HAS_LEFT]
                    self.held_keys[execution] = row[KEYS]
            if not row[MOVED] and row[TOKEN] is not None:
                self.tokens[execution][row[TOKEN + TOKEN_ID]] = row[TOKEN:]
        for execution, token in wanted.tokens:
            found = self.flights.get(execution)
            if found is not None and found[MOVED]:
                again.tokens.add((execution, token))
            elif found is not None:
                self.tokens[execution].setdefault(token, None)
        for execution in wanted.ending:
            if execution in self.flights and execution not in self.held_keys:
                again.left.add((execution, ""))
                again.held_keys.add(execution)
        return again

    def keys_to_free(self, wanted: Wanted) -> set[str]:
        """Limit keys whose lines may move once this batch is applied."""
        keys = {key for execution in wanted.ending for key in self.held_keys.get(execution, ())}
        for execution, token in wanted.tokens:
            row = self.tokens.get(execution, {}).get(token)
            if row is not None and row[TOKEN_LIMIT_KEY] is not None:
                keys.add(row[TOKEN_LIMIT_KEY])
        return keys


def token_of(execution: str, row: Row) -> TokenRow:
    return TokenRow(execution, *row[1:TOKEN_NUMBER])


def barrier_of(execution: str, row: Row) -> BarrierRow:
    """From the columns after the execution's number."""
    return BarrierRow(execution, *row)
