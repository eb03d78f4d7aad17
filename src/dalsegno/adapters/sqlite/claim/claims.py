"""Claims, releases, lost workers and due timers, as jobs of the writer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from msgspec import Struct

from dalsegno.adapters.sqlite.claim.limit_queues import INNOCENT, SUSPECT, KeyUse, Row, open_lines
from dalsegno.adapters.sqlite.commit.workspace import SqliteWorkspace
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.core.settlement import TokenRow, claimable, lease_of, ready_token, release_row, wake_row
from dalsegno.core.settlement.claims import SUSPECT_LOSSES, Choice, Place, Suspicion
from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken
from dalsegno.ports.ledger import Woken

PRIORITY, READY_AT, TURN = 8, 19, 23
"""Columns of ``token.ready``. Every claim sorts by them, so they are read by position and not from
a TokenRow.
"""


def place(row: Row) -> Place:
    return -row[PRIORITY], row[READY_AT], row[TURN]


class Claimed(Struct, frozen=True):
    leases: list[Lease]
    opens_at: float | None = None
    """When a line that a rate has stopped continues."""


def claim(rows: SqliteWorkspace, worker: str, queues: Sequence[str], limit: int, now: float) -> Claimed:
    """Lease by priority, then age, keys in turns.

    Reads O(limit) index entries per queue, plus void tokens and full lines that it meets, which the next claim
    does not see.
    """
    leases: list[Lease] = []
    openings: list[float] = []
    while len(leases) < limit:
        wanted = limit - len(leases)
        suspicion = Suspicion(allowed=not _holds_suspect(rows, worker))
        plain = _in_line(rows, queues, wanted, suspicion)
        lines, more = open_lines(rows, queues, wanted, suspicion, now)
        chosen = Choice([(place(row), row) for row in plain], lines).take(wanted) if lines else plain[:wanted]
        changed = sum(line.leave() for line in lines) > 0
        openings += [line.opens_at for line in lines if line.opens_at is not None]
        rows.warm({row[1] for row in chosen})
        leases += _give(rows, worker, [rows.adopt(row) for row in chosen])
        if len(chosen) < wanted and not (more and changed):
            break
    return Claimed(leases, min(openings, default=None))


def _holds_suspect(rows: SqliteWorkspace, worker: str) -> bool:
    return rows.connection.execute(SQL["leases.holds_suspect"], (worker,)).fetchone() is not None


def _in_line(rows: SqliteWorkspace, queues: Sequence[str], limit: int, suspicion: Suspicion) -> list[Row]:
    """Return the next ready tokens without a key, among them at most one that killed workers before."""
    found = _ready(rows, queues, INNOCENT, limit)
    if suspicion.allowed:
        suspects = sorted(_ready(rows, queues, SUSPECT, 1), key=place)[:1]
        suspicion.allowed = not suspects
        found += suspects
    found.sort(key=place)
    return found


def _ready(rows: SqliteWorkspace, queues: Sequence[str], part: int, limit: int) -> list[Row]:
    return [
        row for queue in queues for row in rows.connection.execute(SQL["leases.ready"], (queue, part, limit))
    ]


def _give(rows: SqliteWorkspace, worker: str, tokens: Iterable[TokenRow]) -> list[Lease]:
    """Lease the tokens. Written at once: the next read of the index must not find them again."""
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
    rows.connection.executemany(SQL["leases.suspect"], suspects)
    return leases


def lease_named(rows: SqliteWorkspace, worker: str, named: Sequence[ReadyToken], now: float) -> list[Lease]:
    rows.warm({ready.execution for ready in named})
    found = (rows.token(ready.execution, ready.token) for ready in named)
    tokens = {(row.execution, row.id): row for row in found if row is not None and row.state == "ready"}
    uses: dict[str, KeyUse] = {}
    return _give(rows, worker, [token for token in tokens.values() if _has_room(rows, token, uses, now)])


def _has_room(rows: SqliteWorkspace, token: TokenRow, uses: dict[str, KeyUse], now: float) -> bool:
    """Return True if its limit lets it start; it is then counted. Its line is updated when it is next read."""
    key = token.limit_key
    if key is None:
        return True
    if not claimable(token, rows):
        return False
    use = uses.get(key) or uses.setdefault(key, KeyUse.of(rows, key, now))
    if not use.room(token.allowance).free:
        return False
    use.take(token.allowance)
    return True


def release(rows: SqliteWorkspace, leases: Sequence[Lease], lost: bool, now: float) -> None:
    for given in leases:
        token = rows.token(given.execution, given.token)
        if token is not None and token.state == "leased" and token.fence == given.fence:
            release_row(token, lost, rows, now)


def take_back(
    rows: SqliteWorkspace, workers: Sequence[str], tokens: Sequence[tuple[str, str]], now: float
) -> tuple[ReadyToken, ...]:
    """Make the tokens ready again that are still leased to these workers, and forget the workers. One that was only
    late may have leased more since ``tokens`` were read: a lease whose worker is forgotten would never be found.
    """
    gone = frozenset(workers)
    rows.flush()
    leased = rows.connection.execute(SQL["leases.leased_by"], (json.dumps(list(workers)),)).fetchall()
    rows.unregister(workers)
    ready = []
    for execution, name in dict.fromkeys((*tokens, *leased)):
        token = rows.token(execution, name)
        if token is not None and token.state == "leased" and token.owner in gone:
            release_row(token, True, rows, now)
            ready.append(ready_token(token))
    return tuple(ready)


def wake(rows: SqliteWorkspace, now: float, limit: int) -> Woken:
    """Make due tokens ready, earliest first."""
    ready: list[ReadyToken] = []
    while len(ready) < limit:
        due = rows.connection.execute(SQL["leases.due"], (now, limit - len(ready))).fetchall()
        rows.warm({row[1] for row in due})
        woken = [token for token in map(rows.adopt, due) if wake_row(token, rows, now)]
        ready += [ready_token(token) for token in woken]
        rows.flush()
        if not due:
            break
    following = rows.connection.execute(SQL["leases.next_due"]).fetchone()
    dues = [following[0]] if following is not None else []
    if rows.has_limits():
        ready += _open_due(rows, now)
        dues += [due for (due,) in rows.connection.execute(SQL["limits.next_opening"])]
    return Woken(tuple(ready), min(dues, default=None))


def _open_due(rows: SqliteWorkspace, now: float) -> list[ReadyToken]:
    """Return the first token of each line that a rate had stopped until now."""
    keys = {key for (key,) in rows.connection.execute(SQL["limits.open_due"], (now,)).fetchall()}
    return [ready for key in sorted(keys) for ready in rows.first_in_lines(key)]
