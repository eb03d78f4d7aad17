"""Pages of executions: the statements that run the scans of a plan (see ``listing_plan``); and
single ones.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

from dalsegno.adapters.listing_plan import (
    Found,
    IndexPlan,
    IndexScan,
    bounds,
    error_words,
    merged,
    plans_of,
    shortest,
)
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.model.execution import ExecutionView
from dalsegno.model.search import id_range, names_workflow, words_of
from dalsegno.ports.archive import ExecutionFilter, Place

MOST_COUNTED = 20_000
"""Rows of a plan up to which it is counted; plans with more are all treated as long."""

LARGE = 1024 * 1024
"""Bytes from which on a value is read piece by piece. In one piece, SQLite would hold a second copy of it.
"""
PIECE = 512 * 1024
INPUT, OUTPUT = (ExecutionView.__struct_fields__.index(name) for name in ("input", "output"))
"""Columns of ``execution_view``, which are the fields of ExecutionView."""

Parameters = dict[str, Any]
_END = ("", "")
"""The range of ids for a text that is no prefix of one: it contains none."""


def page(
    connection: sqlite3.Connection, where: ExecutionFilter, before: str | Place | None, limit: int
) -> list[tuple[Any, ...]]:
    """Return rows of ``execution_view``, newest first."""
    place = _place(connection, before)
    if place is None:
        return []
    names = _named(connection, where.text) if where.text is not None else []
    parameters = _parameters(where, place, names, limit)
    rarest_word = _rarest_word(connection, error_words(where, names), parameters)
    plan = _shortest(connection, plans_of(where, names, rarest_word), parameters)
    scans = [
        connection.execute(SQL[f"listing.{scan.statement}"], given).fetchall()
        for scan in plan.scans
        for given in _of_ranges(scan, parameters)
    ]
    found = merged(scans, limit)
    rows = connection.execute(SQL["listing.views"], (json.dumps(found),)).fetchall()
    by_id = {row[0]: row for row in rows}
    return [by_id[name] for name in found]


def _place(connection: sqlite3.Connection, before: str | Place | None) -> Found | None:
    if before is None:
        return math.inf, ""
    if isinstance(before, Place):
        return before.created_at, before.id
    row = connection.execute(SQL["listing.age"], (before,)).fetchone()
    return (row[0], before) if row is not None else None


def _named(connection: sqlite3.Connection, text: str) -> list[str]:
    names = connection.execute(SQL["listing.workflows"]).fetchall()
    return [name for (name,) in names if names_workflow(text, name)]


def _parameters(where: ExecutionFilter, place: Found, names: Sequence[str], limit: int) -> Parameters:
    since, until, mark = bounds(where, place)
    text = where.text
    first_id, last_id = (id_range(text) if text is not None else None) or _END
    return {
        "since": since,
        "until": until,
        "mark": mark,
        "limit": limit,
        "workflow": where.workflow,
        "parent": where.parent,
        "states": _listed(where.states),
        "kinds": _listed(where.kinds),
        "relations": _listed(where.relations),
        "tags": _listed(where.tags),
        "ended_since": where.ended_since,
        "ended_until": where.ended_until,
        "ended_from": where.ended_since if where.ended_since is not None else -math.inf,
        "ended_to": where.ended_until if where.ended_until is not None else math.inf,
        "text": text,
        "first_id": first_id,
        "last_id": last_id,
        "words": _listed(words_of(text) if text is not None else ()),
        "named": json.dumps(names) if text is not None else None,
    }


def _listed(values: Sequence[Any]) -> str | None:
    return json.dumps(values) if values else None


def _of_ranges(scan: IndexScan, parameters: Parameters) -> Iterator[Parameters]:
    for name, state in scan.ranges:
        yield parameters | {"lane_name": name, "lane_state": state}


def _rarest_word(connection: sqlite3.Connection, words: Sequence[str], parameters: Parameters) -> str | None:
    if not words:
        return None
    plans = [IndexPlan((IndexScan("failed_with", ((word, ""),)),)) for word in words]
    [(rarest_word, _)] = _shortest(connection, plans, parameters).scans[0].ranges
    return rarest_word


def _shortest(
    connection: sqlite3.Connection, plans: Sequence[IndexPlan], parameters: Parameters
) -> IndexPlan:
    choice, count = shortest(plans, MOST_COUNTED), None
    try:
        while True:
            count = _count(connection, *choice.send(count), parameters)  # type: ignore[arg-type]  # begins with None
    except StopIteration as chosen:
        plan: IndexPlan = chosen.value
        return plan


def _count(connection: sqlite3.Connection, scan: IndexScan, most: int, parameters: Parameters) -> int:
    """Return how many rows a scan meets, counted up to ``most``."""
    found = 0
    for given in _of_ranges(scan, parameters):
        if found < most:
            statement = SQL[f"listing.count_{scan.statement}"]
            found += connection.execute(statement, given | {"most": most - found}).fetchone()[0]
    return found


def whole_row(connection: sqlite3.Connection, execution: str) -> tuple[Any, ...] | None:
    """Return the row of ``execution_view``, within a transaction."""
    row = connection.execute(SQL["listing.one"], {"execution": execution, "large": LARGE}).fetchone()
    if row is None:
        return None
    *columns, input_bytes, output_bytes = row
    if max(input_bytes, output_bytes) > LARGE:
        number, has_row = connection.execute(SQL["listing.number"], (execution,)).fetchone()
        if input_bytes > LARGE:
            place = ("large_input", "data") if has_row else ("execution", "input")
            columns[INPUT] = _in_pieces(connection, *place, number)
        if output_bytes > LARGE:
            columns[OUTPUT] = _in_pieces(connection, "execution", "output", number)
    return tuple(columns)


def _in_pieces(connection: sqlite3.Connection, table: str, column: str, number: int) -> bytes:
    found = BytesIO()  # which returns its own buffer without a copy
    with connection.blobopen(table, column, number, readonly=True) as value:
        while piece := value.read(PIECE):
            found.write(piece)
    return found.getvalue()
