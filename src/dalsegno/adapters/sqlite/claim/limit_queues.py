"""Lines of tokens with a limit key, as one claim sees them; see ``core.settlement.claim_order``."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from dalsegno.adapters.sqlite.commit.columns import turns
from dalsegno.adapters.sqlite.commit.workspace import SqliteWorkspace
from dalsegno.adapters.sqlite.limits import in_use, note_start, nth_start, rule_of
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.core.settlement import claimable
from dalsegno.core.settlement.claim_order import Place, Suspicion
from dalsegno.core.settlement.claims import SUSPECT_LOSSES
from dalsegno.core.settlement.limits import Room, bound_of, room
from dalsegno.model.limits import Allowance, Rate

INNOCENT, SUSPECT = 0, 1
"""The two parts of every line, see the index ``token_ready``."""

PRIORITY, READY_AT, LOSSES, ALLOWANCE, TURN = 8, 19, 16, 22, 23
"""Columns of ``token.ready`` and ``limits.heads`` that are needed before a token is read as a whole."""

SPARE_LINES = 32
"""Lines read in addition to those that may be needed: some turn out to be full or empty."""

Row = tuple[Any, ...]


def place(row: Row) -> Place:
    return -row[PRIORITY], row[READY_AT], row[TURN]


class KeyUse:
    """Current use of a key, shared by all its lines in one claim."""

    __slots__ = ("_known", "_starts", "key", "rule", "slots")

    def __init__(self, rows: SqliteWorkspace, key: str, rule: Allowance, slots: int) -> None:
        self.key = key
        self.rule = rule
        self.slots = slots
        self._starts = nth_start(rows.connection, key)
        self._known: dict[int, float | None] = {}

    @classmethod
    def now(cls, rows: SqliteWorkspace, key: str) -> KeyUse:
        return cls(rows, key, rule_of(rows.connection, key), in_use(rows.connection, key))

    def nth_start(self, n: int) -> float | None:
        if n not in self._known:
            self._known[n] = self._starts(n)
        return self._known[n]

    def room(self, own: str | None, now: float) -> Room:
        return room(bound_of(own, self.rule), self.slots, self.nth_start, now)

    def take(self, rows: SqliteWorkspace, own: str | None, now: float) -> None:
        """Count one more lease of the key."""
        self.slots += 1
        rate = bound_of(own, self.rule).rate
        if rate is not None:
            note_start(rows.connection, self.key, rate, now)
            self._known.clear()


class LimitQueueCursor:
    def __init__(
        self,
        rows: SqliteWorkspace,
        stored: Row,
        use: KeyUse,
        suspicion: Suspicion,
        now: float,
    ) -> None:
        self.queue, self.key, _, turn_at, turn = stored[:5]
        self.turn = (turn_at, turn, self.queue, self.key)
        self.opens_at: float | None = None
        self.full = False
        self.served = False
        self._rows = rows
        self._use = use
        self._suspicion = suspicion
        self._now = now
        self.at_a_time = 1
        self._passed = 0
        """Innocent tokens that were taken or may not run: they are still stored as ready."""
        self._heads: deque[Row] = deque()
        self._unsifted: list[Row] | None = None
        self._complete = False
        """All innocent tokens of the line are known."""
        self._suspects: list[Row] | None = None
        """None: not read yet."""

    def has_no_suspects(self) -> None:
        self._suspects = []

    def peek(self) -> set[str]:
        """Read the first tokens; return the executions they belong to."""
        self._unsifted = self._stored(INNOCENT, self.at_a_time)
        return {row[1] for row in self._unsifted}

    def place(self) -> Place | None:
        head = self._head()
        if head is None:
            return None
        found = self._use.room(head[ALLOWANCE], self._now)
        self.full, self.opens_at = not found.free, found.opens_at
        return place(head) if found.free else None

    def take(self) -> Row:
        head = self._head()
        if head is None:
            raise LookupError(f"nothing is in line for '{self.key}'")
        if head[LOSSES] >= SUSPECT_LOSSES:
            self._suspicion.allowed = False
            self._suspects = []
        else:
            self._heads.popleft()
            self._passed += 1
        self._use.take(self._rows, head[ALLOWANCE], self._now)
        self.served = True
        return head

    def leave(self) -> bool:
        """Store the state in which the claim leaves the line; return True if it changed."""
        head = self._head()
        connection, name = self._rows.connection, (self.queue, self.key)
        if head is None and self._is_empty():
            connection.execute(SQL["limits.clear"], name)
            self._rows.limits_matter = None
            return True
        if self.served and head is not None:
            moved = (head[PRIORITY], self._now, next(turns), *name)
            connection.execute(SQL["limits.serve"], moved)
        if self.full:
            connection.execute(SQL["limits.shut"], (self.opens_at, *name))
        return self.served or self.full

    def _head(self) -> Row | None:
        if not self._heads and not self._complete:
            self._look()
        suspect = self._suspect() if self._suspicion.allowed else None
        if suspect is not None and (not self._heads or place(suspect) < place(self._heads[0])):
            return suspect
        return self._heads[0] if self._heads else None

    def _look(self) -> None:
        """Read on until there is a token that may run or the line ends."""
        while not self._heads and not self._complete:
            wanted = self._passed + self.at_a_time
            stored = self._unsifted if self._unsifted is not None else self._stored(INNOCENT, wanted)
            self._unsifted = None
            self._complete = len(stored) < wanted
            runnable = self._runnable(stored[self._passed :])
            self._passed += len(stored) - self._passed - len(runnable)
            self._heads.extend(runnable)

    def _runnable(self, stored: list[Row]) -> list[Row]:
        """Return the tokens without those whose execution is paused or has ended, which use no slot."""
        self._rows.warm({row[1] for row in stored})
        return [row for row in stored if claimable(self._rows.adopt(row), self._rows)]

    def _suspect(self) -> Row | None:
        if self._suspects is None:
            self._suspects = self._runnable(self._stored(SUSPECT, 1))
        return self._suspects[0] if self._suspects else None

    def _is_empty(self) -> bool:
        return not self._heads and self._complete and not self._stored(SUSPECT, 1)

    def _stored(self, part: int, limit: int) -> list[Row]:
        wanted = (self.queue, self.key, part, limit)
        return self._rows.connection.execute(SQL["limits.heads"], wanted).fetchall()


def open_lines(
    rows: SqliteWorkspace, queues: Sequence[str], wanted: int, suspicion: Suspicion, now: float
) -> tuple[list[LimitQueueCursor], bool]:
    """Return the lines whose turn is next, and True if there may be more."""
    if not rows.has_limits():
        return [], False
    rows.connection.execute(SQL["limits.open_due"], (now,)).fetchall()
    most = wanted + SPARE_LINES
    stored = [
        line for queue in queues for line in rows.connection.execute(SQL["limits.open_lines"], (queue, most))
    ]
    if not stored:
        return [], False
    uses: dict[str, KeyUse] = {}
    lines = [LimitQueueCursor(rows, line, _use(rows, line, uses), suspicion, now) for line in stored]
    _look_ahead(rows, lines, queues, wanted)
    return lines, len(stored) >= most


def _use(rows: SqliteWorkspace, line: Row, uses: dict[str, KeyUse]) -> KeyUse:
    key, (concurrency, starts, period, slots) = line[1], line[5:]
    if key not in uses:
        rate = Rate(starts, period) if starts is not None else None
        uses[key] = KeyUse(rows, key, Allowance(concurrency, rate), slots)
    return uses[key]


def _look_ahead(
    rows: SqliteWorkspace, lines: Sequence[LimitQueueCursor], queues: Sequence[str], wanted: int
) -> None:
    """Read the heads of all lines, so that their executions are fetched together."""
    suspicious = {
        queue for queue in queues if rows.connection.execute(SQL["limits.any_suspect"], (queue,)).fetchone()
    }
    executions: set[str] = set()
    for line in lines:
        if line.queue not in suspicious:
            line.has_no_suspects()
        line.at_a_time = max(2, wanted // len(lines) + 1)
        executions |= line.peek()
    rows.warm(executions)
