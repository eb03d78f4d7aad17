"""Removing rows in chunks: after an ending, and after the retention time."""

from __future__ import annotations

from collections.abc import Iterable

from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.adapters.sqlite.workspace import UNFINISHED, SqliteWorkspace
from dalsegno.core.settlement import TokenRow

IN_FLIGHT = ("scope", "barrier", "slot", "gate", "left_context")
KEPT_AFTER_THE_END = ("output", "blob", "event")


def sweep(rows: SqliteWorkspace, now: float, limit: int) -> int:
    """Removes at most ``limit`` rows of ended executions; returns how many went."""
    gone = 0
    ended = rows.connection.execute(SQL["sweep.ended"], (limit,)).fetchall()
    for (execution,) in ended:
        if gone >= limit:
            break
        gone += _sweep(rows, execution, now, limit - gone)
    return gone


def _sweep(rows: SqliteWorkspace, execution: str, now: float, limit: int) -> int:
    """At most ``limit`` rows of one execution. Its flight row goes last, so a crash leaves nothing behind."""
    rows.forget(execution)
    gone = _sweep_tokens(rows, execution, now, limit)
    gone += _delete(rows, execution, IN_FLIGHT, limit - gone)
    if gone < limit:
        rows.connection.execute(SQL["sweep.land"], {"execution": execution})
        rows.connection.execute(SQL["sweep.delete_flight"], {"execution": execution})
        gone += 1
    return gone


def _sweep_tokens(rows: SqliteWorkspace, execution: str, now: float, limit: int) -> int:
    found = rows.connection.execute(SQL["sweep.tokens"], (execution, limit)).fetchall()
    tokens = [TokenRow(*row) for row in found]
    cancelled = [token for token in tokens if _was_live(token)]
    if cancelled:
        _record_cancelled(rows, execution, cancelled, now)
    rows.connection.executemany(SQL["sweep.delete_token"], [(execution, token.id) for token in tokens])
    return len(tokens)


def _was_live(token: TokenRow) -> bool:
    return token.state in UNFINISHED and bool(token.live) and token.kind in ("node", "join")


def _record_cancelled(rows: SqliteWorkspace, execution: str, tokens: list[TokenRow], now: float) -> None:
    (seq,) = rows.connection.execute(SQL["sweep.seq"], (execution,)).fetchone()
    events = [
        (execution, number, "NodeCancelled", token.node, token.scope, now, None, token.id, None, None)
        for number, token in enumerate(tokens, seq + 1)
    ]
    rows.connection.executemany(SQL["history.insert_event"], events)
    rows.connection.execute(SQL["sweep.count_event"], (seq + len(events), execution))


def _delete(rows: SqliteWorkspace, execution: str, tables: Iterable[str], limit: int) -> int:
    gone = 0
    for table in tables:
        if gone >= limit:
            break
        parameters = {"execution": execution, "limit": limit - gone}
        gone += rows.connection.execute(SQL[f"sweep.delete_{table}"], parameters).rowcount
    return gone


def remove_ended(rows: SqliteWorkspace, before: float, limit: int, most_rows: int) -> tuple[int, bool]:
    """Removes up to ``limit`` outdated executions, whole, until about ``most_rows`` rows went.

    Returns how many executions went, and whether some are left because the rows sufficed. The execution's own row
    goes last: as long as anything of it is there, its id is taken and the next call goes on with it.
    """
    removed = spent = 0
    for (execution,) in rows.connection.execute(SQL["sweep.outdated"], (before, limit)).fetchall():
        if spent >= most_rows:
            return removed, True
        rows.forget(execution)
        tables = ("tokens", *IN_FLIGHT, *KEPT_AFTER_THE_END)
        spent += _delete(rows, execution, tables, most_rows - spent)
        if spent >= most_rows:
            return removed, True
        for statement in ("sweep.delete_tags", "sweep.delete_flight", "sweep.delete_execution"):
            spent += rows.connection.execute(SQL[statement], {"execution": execution}).rowcount
        removed += 1
    return removed, False
