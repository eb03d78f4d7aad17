"""Lines of tokens with a limit key, read on as far as a claim needs them; see
``adapters.limit_lines``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dalsegno.adapters import limit_lines
from dalsegno.adapters.limit_lines import SPARE_LINES, Head, LineCursor, heads_of_each
from dalsegno.adapters.rows import allowance
from dalsegno.adapters.sqlite.commit.changes import turns
from dalsegno.adapters.sqlite.commit.workspace import SqliteWorkspace
from dalsegno.adapters.sqlite.limits import in_use, note_start, nth_start, rule_of
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.core.settlement import claimable
from dalsegno.core.settlement.claims import Suspicion
from dalsegno.model.limits import Allowance, Rate

INNOCENT, SUSPECT = 0, 1
"""The two parts of every line, see the index ``token_ready``."""

Row = tuple[Any, ...]


class KeyUse(limit_lines.KeyUse):
    """Starts are read when a rate needs them, and noted at once."""

    def __init__(self, rows: SqliteWorkspace, key: str, rule: Allowance, slots: int, now: float) -> None:
        super().__init__(key, rule, slots, now)
        self._rows = rows
        self._starts = nth_start(rows.connection, key)
        self._known: dict[int, float | None] = {}

    @classmethod
    def of(cls, rows: SqliteWorkspace, key: str, now: float) -> KeyUse:
        return cls(rows, key, rule_of(rows.connection, key), in_use(rows.connection, key), now)

    def nth_start(self, n: int) -> float | None:
        if n not in self._known:
            self._known[n] = self._starts(n)
        return self._known[n]

    def note_start(self, rate: Rate) -> None:
        note_start(self._rows.connection, self.key, rate, self.now)
        self._known.clear()


class LimitQueueCursor(LineCursor[Row]):
    def __init__(
        self,
        rows: SqliteWorkspace,
        queue: str,
        key: str,
        turn: tuple[float, int],
        use: KeyUse,
        suspicion: Suspicion,
    ) -> None:
        super().__init__(queue, key, turn, use, suspicion)
        self.at_a_time = 1
        self._rows = rows
        self._now = use.now
        self._void = 0
        """Innocent tokens that may not run. They are still stored as ready, and so are those that
        were taken.
        """
        self._unsifted: list[Row] | None = None

    def peek(self) -> set[str]:
        """Read the first tokens; return the executions they belong to."""
        self._unsifted = self._stored(INNOCENT, self.at_a_time)
        return {execution for _, execution, *_ in self._unsifted}

    def leave(self) -> bool:
        """Store the state in which the claim leaves the line; return True if it changed."""
        head = self.head()
        connection, name = self._rows.connection, (self.queue, self.key)
        if head is None and self._is_empty():
            connection.execute(SQL["limits.clear"], name)
            self._rows.limits_matter = None
            return True
        if self.served and head is not None:
            rank, *_ = head.place
            connection.execute(SQL["limits.serve"], (-rank, self._now, next(turns), *name))
        if self.full:
            connection.execute(SQL["limits.shut"], (self.opens_at, *name))
        return self.served or self.full

    def read_on(self) -> None:
        while not self.innocent and not self.complete:
            passed = self._void + self.taken
            wanted = passed + self.at_a_time
            stored = self._unsifted if self._unsifted is not None else self._stored(INNOCENT, wanted)
            self._unsifted = None
            self.complete = len(stored) < wanted
            found = stored[passed:]
            runnable = self._runnable(found)
            self._void += len(found) - len(runnable)
            self.innocent.extend(runnable)

    def read_suspects(self) -> list[Head[Row]]:
        return self._runnable(self._stored(SUSPECT, 1))

    def _runnable(self, stored: list[Row]) -> list[Head[Row]]:
        """Return the tokens without those whose execution is paused or has ended, which use no
        slot.
        """
        self._rows.warm({execution for _, execution, *_ in stored})
        heads = []
        for row in stored:
            token = self._rows.adopt(row)
            if claimable(token, self._rows):
                *_, turn = row
                place = (-token.priority, token.ready_at, turn)
                heads.append(Head(place, token.losses, token.allowance, row))
        return heads

    def _is_empty(self) -> bool:
        return not self.innocent and self.complete and not self._stored(SUSPECT, 1)

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
    lines = []
    for queue, key, _, turn_at, turn, concurrency, starts, period, slots in stored:
        if key not in uses:
            uses[key] = KeyUse(rows, key, allowance(concurrency, starts, period), slots, now)
        lines.append(LimitQueueCursor(rows, queue, key, (turn_at, turn), uses[key], suspicion))
    _look_ahead(rows, lines, queues, wanted)
    return lines, len(stored) >= most


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
            line.suspects = []
        line.at_a_time = heads_of_each(wanted, len(lines))
        executions |= line.peek()
    rows.warm(executions)
