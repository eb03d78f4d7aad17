"""Removing rows in chunks: after an ending, and after the retention time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.adapters.sqlite.workspace import UNFINISHED, SqliteWorkspace
from dalsegno.core.settlement import cancelled_event

IN_FLIGHT = ("scope", "barrier", "slot", "gate", "left_context", "inbox", "mailbox", "machine")
KEPT_AFTER_THE_END = ("left_at_root", "output", "blob", "event")


def sweep(rows: SqliteWorkspace, now: float, limit: int) -> int:
    """Removes at most ``limit`` rows of ended executions; returns how many went."""
    gone = 0
    ended = rows.connection.execute(SQL["sweep.ended"], (limit,)).fetchall()
    for number, execution in ended:
        if gone >= limit:
            break
        rows.forget(execution)
        gone += _sweep(rows.connection, number, now, limit - gone)
    return gone


def _sweep(connection: sqlite3.Connection, execution: int, now: float, limit: int) -> int:
    """At most ``limit`` rows of one execution. Its flight row goes last, so a crash leaves nothing behind."""
    gone = _sweep_tokens(connection, execution, now, limit)
    gone += _delete(connection, execution, IN_FLIGHT, limit - gone)
    if gone < limit:
        connection.execute(SQL["sweep.land"], {"execution": execution})
        connection.execute(SQL["sweep.delete_flight"], {"execution": execution})
        gone += 1
    return gone


def _sweep_tokens(connection: sqlite3.Connection, execution: int, now: float, limit: int) -> int:
    tokens = connection.execute(SQL["sweep.tokens"], (execution, limit)).fetchall()
    told = [
        cancelled_event(kind, bool(live), node, scope, token, now)
        for _, token, state, kind, node, scope, live in tokens
        if state in UNFINISHED
    ]
    cancelled = [event for event in told if event is not None]
    if cancelled:
        (seq,) = connection.execute(SQL["sweep.seq"], (execution,)).fetchone()
        events = [
            (execution, number, event.kind, event.node, event.scope, now, None, event.token, None, None)
            for number, event in enumerate(cancelled, seq + 1)
        ]
        connection.executemany(SQL["history.insert_event"], events)
        connection.execute(SQL["sweep.count_event"], (seq + len(events), execution))
    connection.executemany(SQL["sweep.delete_token"], [token[:1] for token in tokens])
    return len(tokens)


def _delete(connection: sqlite3.Connection, execution: int, tables: Iterable[str], limit: int) -> int:
    gone = 0
    for table in tables:
        if gone >= limit:
            break
        parameters = {"execution": execution, "limit": limit - gone}
        gone += connection.execute(SQL[f"sweep.delete_{table}"], parameters).rowcount
    return gone


def remove_ended(rows: SqliteWorkspace, before: float, limit: int, most_rows: int) -> tuple[int, bool]:
    """Removes up to ``limit`` outdated executions, whole, until about ``most_rows`` rows went.

    Returns how many executions went, and whether some are left because the rows sufficed. The execution's own row
    goes last: as long as anything of it is there, its id is taken and the next call goes on with it.
    """
    removed = spent = 0
    tables = ("tokens", *IN_FLIGHT, *KEPT_AFTER_THE_END)
    for number, execution in rows.connection.execute(SQL["sweep.outdated"], (before, limit)).fetchall():
        rows.forget(execution)
        spent += _delete(rows.connection, number, tables, most_rows - spent)
        if spent >= most_rows:
            return removed, True
        for statement in ("sweep.delete_tags", "sweep.delete_flight", "sweep.delete_execution"):
            spent += rows.connection.execute(SQL[statement], {"execution": number}).rowcount
        removed += 1
    return removed, False
