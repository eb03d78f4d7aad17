"""Who may run what: claims, hand-backs, lost workers and due timers, as jobs of the writer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.adapters.sqlite.workspace import SqliteWorkspace
from dalsegno.core.settlement import TokenRow, claimable, lease_of, ready_token, release_row, wake_row
from dalsegno.core.settlement.claim import SUSPECT_LOSSES
from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken
from dalsegno.ports.ledger import Woken

INNOCENT, SUSPECT = 0, 1
"""The two lines of a queue, see the index ``token_ready``."""

PRIORITY, READY_AT, TURN = 8, 19, 22
"""Columns of ``token.ready`` that decide the place in line."""


def claim(rows: SqliteWorkspace, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
    """Leases by priority, then age. Reads O(limit) index entries per queue, plus what it finds to be void."""
    leases: list[Lease] = []
    while len(leases) < limit:
        wanted = limit - len(leases)
        found = _in_line(rows, worker, queues, wanted)
        leases += _give(rows, worker, found)
        if len(found) < wanted:
            break
    return leases


def _in_line(rows: SqliteWorkspace, worker: str, queues: Sequence[str], limit: int) -> list[TokenRow]:
    """The next ready tokens, among them at most one that killed workers before, and none if one is leased."""
    found = _ready(rows, queues, INNOCENT, limit)
    if rows.connection.execute(SQL["token.holds_suspect"], (worker,)).fetchone() is None:
        found += sorted(_ready(rows, queues, SUSPECT, 1), key=_place)[:1]
    found.sort(key=_place)
    rows.warm({row[1] for row in found[:limit]})
    return [rows.adopt(row) for row in found[:limit]]


def _ready(rows: SqliteWorkspace, queues: Sequence[str], line: int, limit: int) -> list[tuple[Any, ...]]:
    return [
        row for queue in queues for row in rows.connection.execute(SQL["token.ready"], (queue, line, limit))
    ]


def _place(row: tuple[Any, ...]) -> tuple[int, float, int]:
    return -row[PRIORITY], row[READY_AT], row[TURN]


def _give(rows: SqliteWorkspace, worker: str, tokens: Iterable[TokenRow]) -> list[Lease]:
    """Written at once: the next look at the index must not find them again."""
    leases, suspects = [], []
    for token in tokens:
        execution = rows.execution(token.execution)
        if claimable(token, rows) and execution is not None:
            token.state = "leased"
            token.owner = worker
            token.fence += 1
            rows.save_token(token)
            leases.append(lease_of(token, execution))
            if token.losses >= SUSPECT_LOSSES:
                suspects.append((rows.number(token), worker))
    rows.flush()
    rows.connection.executemany(SQL["worker.suspect"], suspects)
    return leases


def lease_named(rows: SqliteWorkspace, worker: str, named: Sequence[ReadyToken]) -> list[Lease]:
    rows.warm({ready.execution for ready in named})
    found = (rows.token(ready.execution, ready.token) for ready in named)
    tokens = {(row.execution, row.id): row for row in found if row is not None and row.state == "ready"}
    return _give(rows, worker, tokens.values())


def release(rows: SqliteWorkspace, leases: Sequence[Lease], now: float) -> None:
    for given in leases:
        token = rows.token(given.execution, given.token)
        if token is not None and token.state == "leased" and token.fence == given.fence:
            release_row(token, False, now)
            rows.save_token(token)


def take_back(
    rows: SqliteWorkspace, workers: Sequence[str], tokens: Sequence[tuple[str, str]], now: float
) -> tuple[ReadyToken, ...]:
    """Makes those of the tokens ready again that are still leased to these workers, which are forgotten."""
    gone = frozenset(workers)
    rows.unregister(workers)
    ready = []
    for execution, name in tokens:
        token = rows.token(execution, name)
        if token is not None and token.state == "leased" and token.owner in gone:
            release_row(token, True, now)
            rows.save_token(token)
            ready.append(ready_token(token))
    return tuple(ready)


def wake(rows: SqliteWorkspace, now: float, limit: int) -> Woken:
    """Makes due tokens ready, earliest first."""
    ready: list[ReadyToken] = []
    while len(ready) < limit:
        due = rows.connection.execute(SQL["token.due"], (now, limit - len(ready))).fetchall()
        rows.warm({row[1] for row in due})
        woken = [token for token in map(rows.adopt, due) if wake_row(token, rows, now)]
        ready += [ready_token(token) for token in woken]
        rows.flush()
        if not due:
            break
    following = rows.connection.execute(SQL["token.next_due"]).fetchone()
    return Woken(tuple(ready), following[0] if following is not None else None)
