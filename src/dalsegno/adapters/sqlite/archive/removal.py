"""Removal of rows in chunks: after an ending, and after the retention time."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from dalsegno.adapters.sqlite.commit.workspace import SqliteWorkspace
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.core.settlement import cancelled_event
from dalsegno.model.event import NewEvent
from dalsegno.model.search import error_words

IN_FLIGHT = ("scope", "barrier", "slot", "gate", "left_context", "inbox", "mailbox", "machine")
SWEPT_TOGETHER = 100
"""Most executions that are swept by the same statements, in one transaction."""
SMALL = 200
"""Events up to which an execution is removed together with others."""
WEIGHTS = {"blob": 8, "blob_piece": 128, "large_input": 640, "published_value": 4, "stream_part": 8}
"""Rows of other tables that take as long to remove as one row of these."""
SHOWN = ("published_value", "stream_part", "stream")
KEPT_AFTER_THE_END = (
    "left_at_root",
    "large_input",
    "output",
    "blob",
    "blob_piece",
    *SHOWN,
    "stored_bytes",
    "event",
)


class Ended(NamedTuple):
    """An ended execution whose rows are still to be swept, from ``sweep.ended``."""

    number: int
    execution: str
    state: str
    touched_at: float


class Removable(NamedTuple):
    """An ended execution past its retention time, from ``removal.outdated`` or
    ``removal.removable``.
    """

    number: int
    execution: str
    state: str
    size: int
    """Its events, and one for each 16 KiB that it has stored; 0 for one that is not swept."""


def sweep(rows: SqliteWorkspace, limit: int) -> int:
    """Remove at most ``limit`` rows of ended executions; return how many were removed. Their flight rows go last, so a
    crash leaves nothing behind.
    """
    connection = rows.connection
    found = connection.execute(SQL["sweep.ended"], (min(limit, SWEPT_TOGETHER),))
    ended = [Ended(*row) for row in found]
    if not ended:
        return 0
    for each in ended:
        rows.forget(each.execution)
    numbers = json.dumps([each.number for each in ended])
    gone = _sweep_tokens(connection, {each.number: each.touched_at for each in ended}, numbers, limit)
    if gone < limit:
        gone += connection.execute(SQL["sweep.delete_machines"], (numbers, limit - gone)).rowcount
    if gone < limit:
        for table, execution in connection.execute(SQL["sweep.filled"], (numbers,)).fetchall():
            gone += _delete(connection, execution, (table,), limit - gone)
    return gone + _land(connection, ended[: max(limit - gone, 0)])


def _sweep_tokens(
    connection: sqlite3.Connection, ended_at: Mapping[int, float], numbers: str, limit: int
) -> int:
    """Remove tokens; the unfinished ones are recorded as cancelled at the times of the endings."""
    tokens = connection.execute(SQL["sweep.tokens"], (numbers, limit)).fetchall()
    unfinished = [number for number, is_unfinished in tokens if is_unfinished]
    if unfinished:
        _record_cancelled(connection, ended_at, unfinished)
    connection.execute(SQL["sweep.delete_tokens"], (json.dumps([number for number, _ in tokens]),))
    return len(tokens)


def _record_cancelled(
    connection: sqlite3.Connection, ended_at: Mapping[int, float], tokens: Sequence[int]
) -> None:
    cancelled: dict[int, list[NewEvent]] = {}
    found = connection.execute(SQL["sweep.unfinished"], (json.dumps(tokens),))
    for execution, token, kind, node, scope, live in found:
        event = cancelled_event(kind, bool(live), node, scope, token, ended_at[execution])
        if event is not None:
            cancelled.setdefault(execution, []).append(event)
    for execution, events in cancelled.items():
        _record(connection, execution, events)


def _record(connection: sqlite3.Connection, execution: int, events: Sequence[NewEvent]) -> None:
    """Append events to the history of an execution."""
    (seq,) = connection.execute(SQL["sweep.seq"], (execution,)).fetchone()
    rows = [
        (execution, number, event.kind, event.node, event.scope, event.at, None, event.token, None, None)
        for number, event in enumerate(events, seq + 1)
    ]
    connection.executemany(SQL["history.insert_event"], rows)
    connection.execute(SQL["sweep.count_event"], (seq + len(rows), execution))


def _land(connection: sqlite3.Connection, ended: Sequence[Ended]) -> int:
    """Remove the flight rows of executions of which nothing else is left to sweep."""
    if not ended:
        return 0
    words = [word for each in ended if each.state == "FAILED" for word in _words(connection, each.number)]
    connection.executemany(SQL["sweep.insert_words"], words)
    numbers = json.dumps([each.number for each in ended])
    connection.execute(SQL["sweep.land"], (numbers,))
    return connection.execute(SQL["sweep.delete_flight"], (numbers,)).rowcount


def _delete(connection: sqlite3.Connection, execution: int, tables: Iterable[str], limit: int) -> int:
    gone = 0
    for table in tables:
        if gone >= limit:
            break
        weight = WEIGHTS.get(table, 1)
        parameters = {"execution": execution, "limit": max((limit - gone) // weight, 1)}
        gone += connection.execute(SQL[f"removal.delete_{table}"], parameters).rowcount * weight
    return gone


def _words(connection: sqlite3.Connection, execution: int) -> list[tuple[str, float, str]]:
    """Return the words by which a failed execution is found."""
    created_at, name, error = connection.execute(SQL["sweep.failures"], (execution,)).fetchone()
    return [(word, created_at, name) for word in error_words(error)]


def remove_ended(
    rows: SqliteWorkspace, state: str, before: float, limit: int, most_rows: int
) -> tuple[int, bool]:
    """Remove up to ``limit`` outdated executions, whole, until about ``most_rows`` rows are removed.

    Return how many executions were removed, and True if the row limit left some.
    """
    found = rows.connection.execute(SQL["removal.outdated"], (state, before, limit))
    removed, more = _remove(rows, [Removable(*row) for row in found], most_rows)
    return len(removed), more


def remove_named(rows: SqliteWorkspace, names: str, most_rows: int) -> tuple[list[str], bool]:
    """Remove outdated executions of a JSON list of ids; return the removed ones, and True if some are left."""
    found = rows.connection.execute(SQL["removal.removable"], (names,))
    return _remove(rows, [Removable(*row) for row in found], most_rows)


def _remove(rows: SqliteWorkspace, found: Sequence[Removable], most_rows: int) -> tuple[list[str], bool]:
    """Remove small, swept executions together and the others one by one, up to the row limit."""
    small = [each for each in found if 0 < each.size <= SMALL]
    together = [
        each
        for each, so_far in zip(small, accumulate(each.size for each in small), strict=True)
        if so_far <= most_rows
    ]
    if together:
        for each in together:
            rows.forget(each.execution)
        _remove_together(rows.connection, together)
        return [each.execution for each in together], len(together) < len(found)
    return _remove_each(rows, found, most_rows)


def _remove_together(connection: sqlite3.Connection, found: Sequence[Removable]) -> None:
    words = [word for each in found if each.state == "FAILED" for word in _words(connection, each.number)]
    connection.executemany(SQL["removal.delete_words"], words)
    numbers = json.dumps([each.number for each in found])
    _remove_tags(connection, numbers)
    for table in (
        "left",
        "large_input",
        "output",
        "blob",
        "blob_piece",
        *SHOWN,
        "stored_bytes",
        "event",
        "execution",
    ):
        connection.execute(SQL[f"removal.delete_{table}_of_all"], (numbers,))


def _remove_tags(connection: sqlite3.Connection, numbers: str) -> int:
    tags = connection.execute(SQL["removal.tags_of_all"], (numbers,)).fetchall()
    connection.executemany(SQL["removal.delete_tags"], tags)
    return len(tags)


def _remove_each(rows: SqliteWorkspace, found: Iterable[Removable], most_rows: int) -> tuple[list[str], bool]:
    """Remove executions one by one.

    The execution's own row is removed last: as long as anything of it exists, its id is taken and the next call
    continues.
    """
    removed: list[str] = []
    spent = 0
    tables = ("tokens", *IN_FLIGHT, *KEPT_AFTER_THE_END)
    for number, execution, state, _ in found:
        rows.forget(execution)
        spent += _delete(rows.connection, number, tables, most_rows - spent)
        if spent >= most_rows:
            return removed, True
        if state == "FAILED":
            rows.connection.executemany(SQL["removal.delete_words"], _words(rows.connection, number))
        spent += _remove_tags(rows.connection, json.dumps([number]))
        for statement in ("removal.delete_flight", "removal.delete_execution"):
            spent += rows.connection.execute(SQL[statement], {"execution": number}).rowcount
        removed.append(execution)
    return removed, False
