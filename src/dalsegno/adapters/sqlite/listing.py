"""Pages of executions: which index to walk for a filter, and how walks become one page.

A filter is answered by one of several leads. A lead is some lanes, each a walk from the newest row on; their rows are
merged. Where several leads would do, the one with the fewest rows to look at is taken, as far as counting a few rows of
each tells.
"""

from __future__ import annotations

import heapq
import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct

from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.model.execution import ENDED, ExecutionKind, ExecutionState
from dalsegno.model.search import MOST_WORDS, id_range, names_workflow, words_of
from dalsegno.ports.archive import ExecutionFilter, Place

STATES: tuple[ExecutionState, ...] = ("PENDING", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED")
KINDS: tuple[ExecutionKind, ...] = ("graph", "script", "python", "task")
"""Without schedules, which are listed only where they are asked for."""

MOST_COUNTED = 20_000
"""Rows of a lead that are counted; one with more is long, and as good as any other long one."""
MOST_SORTED = 5000
"""Rows that may be sorted for one page."""
MOST_NAMES = 20
"""Workflows that are walked one by one for a part of their name."""
CLOCKS_APART = 60.0
"""Seconds by which an execution may seem to have ended before it was created."""

Parameters = dict[str, Any]
Row = tuple[float, str]
_END = ("", "")
"""Of no id."""


class Lane(Struct, frozen=True):
    """One walk: a statement and what it leads by."""

    statement: str
    leading: Parameters = {}


class Lead(Struct, frozen=True):
    lanes: tuple[Lane, ...]
    most: int = MOST_COUNTED
    sorts: bool = False
    """Whether it looks at everything before the first row; then it must be short."""


def page(
    connection: sqlite3.Connection, where: ExecutionFilter, before: str | Place | None, limit: int
) -> list[tuple[Any, ...]]:
    """Rows of ``execution_view``, newest first."""
    place = _place(connection, before)
    if place is None:
        return []
    parameters = _parameters(connection, where, place, limit)
    lead = _shortest(connection, _leads(connection, where, parameters), parameters)
    walks = [_walk(connection, lane, parameters) for lane in lead.lanes]
    found = list(islice(_once(heapq.merge(*walks, reverse=True)), limit))
    rows = connection.execute(SQL["listing.views"], (json.dumps([name for _, name in found]),)).fetchall()
    by_id = {row[0]: row for row in rows}
    return [by_id[name] for _, name in found]


def _place(connection: sqlite3.Connection, before: str | Place | None) -> Row | None:
    if before is None:
        return math.inf, ""
    if isinstance(before, Place):
        return before.created_at, before.id
    row = connection.execute(SQL["listing.age"], (before,)).fetchone()
    return (row[0], before) if row is not None else None


def _walk(connection: sqlite3.Connection, lane: Lane, parameters: Parameters) -> Iterable[Row]:
    rows: list[Row] = connection.execute(
        SQL[f"listing.{lane.statement}"], parameters | lane.leading
    ).fetchall()
    return rows


def _once(rows: Iterable[Row]) -> Iterator[Row]:
    """An execution may be found in several ways; its rows come one after the other."""
    last: Row | None = None
    for row in rows:
        if row != last:
            yield row
        last = row


# -- filters as parameters ------------------------------------------------------------------------------------


def _parameters(connection: sqlite3.Connection, where: ExecutionFilter, place: Row, limit: int) -> Parameters:
    latest = min(
        where.created_until if where.created_until is not None else math.inf,
        where.ended_until + CLOCKS_APART if where.ended_until is not None else math.inf,
    )
    until, mark = min(place, (latest, ""))
    first_id, last_id = (id_range(where.text) if where.text is not None else None) or _END
    return {
        "since": where.created_since if where.created_since is not None else -math.inf,
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
        "text": where.text,
        "first_id": first_id,
        "last_id": last_id,
        "words": _listed(words_of(where.text) if where.text is not None else ()),
        "named": json.dumps(_named(connection, where.text)) if where.text is not None else None,
    }


def _listed(values: Sequence[Any]) -> str | None:
    return json.dumps(values) if values else None


def _named(connection: sqlite3.Connection, text: str) -> list[str]:
    names = connection.execute(SQL["listing.workflows"]).fetchall()
    return [name for (name,) in names if names_workflow(text, name)]


# -- leads ----------------------------------------------------------------------------------------------------


def _shortest(connection: sqlite3.Connection, leads: Sequence[Lead], parameters: Parameters) -> Lead:
    """The one that meets the fewest rows; among long ones the first, and none that sorts."""
    if len(leads) == 1:
        return leads[0]
    best, fewest = next((lead for lead in leads if not lead.sorts), _NEWEST), MOST_COUNTED
    for lead in leads:
        most = min(lead.most, fewest)
        count = _count(connection, lead, parameters, most)
        if count < most:
            best, fewest = lead, count
    return best


def _count(connection: sqlite3.Connection, lead: Lead, parameters: Parameters, most: int) -> int:
    """How many rows it meets, as far as that is less than ``most``."""
    found = 0
    for lane in lead.lanes:
        if found >= most or lane.statement == "newest":
            return most
        given = parameters | lane.leading | {"most": most - found}
        (count,) = connection.execute(SQL[f"listing.count_{lane.statement}"], given).fetchone()
        found += count
    return found


_NEWEST = Lead((Lane("newest"),))


def _leads(connection: sqlite3.Connection, where: ExecutionFilter, parameters: Parameters) -> list[Lead]:
    """All that could answer this filter; those that are usually short come first."""
    if where.awaits_signal:
        return [Lead((Lane("awaiting_signal"),), sorts=True)]
    if where.kinds == ("schedule",):
        return [_by_state(where)]  # there are few of them, however many executions have their names
    by_text = [_by_text(connection, where, parameters)] if where.text is not None else []
    return [*by_text, *_narrow_leads(where), *_wide_leads(where)] or [_NEWEST]


def _narrow_leads(where: ExecutionFilter) -> Iterator[Lead]:
    states = where.states or STATES
    if where.parent is not None:
        yield Lead(tuple(Lane("of_parent", {"in_state": state}) for state in states))
    for name, value in where.tags:
        yield Lead((Lane("tagged", {"tag_name": name, "tag_value": value}),))


def _wide_leads(where: ExecutionFilter) -> Iterator[Lead]:
    if where.workflow is not None:
        yield Lead(_of_workflow(where, [where.workflow]))
    if where.relations:
        yield Lead(
            tuple(
                Lane("in_relation", {"in_relation": relation, "in_state": state})
                for relation in where.relations
                for state in where.states or STATES
            )
        )
    if where.states or where.kinds:
        yield _by_state(where)
    if where.ended_since is not None or where.ended_until is not None:
        ended = [state for state in where.states or STATES if state in ENDED]
        lanes = tuple(Lane("ended", {"in_state": state}) for state in ended)
        yield Lead(lanes, MOST_SORTED, sorts=True)
        yield _NEWEST


def _by_state(where: ExecutionFilter) -> Lead:
    return Lead(
        tuple(
            Lane("in_state", {"in_state": state, "of_kind": kind})
            for state in where.states or STATES
            for kind in where.kinds or KINDS
        )
    )


def _of_workflow(where: ExecutionFilter, names: Iterable[str]) -> tuple[Lane, ...]:
    return tuple(
        Lane("of_workflow", {"of_workflow": name, "in_state": state})
        for name in names
        for state in where.states or STATES
    )


def _by_text(connection: sqlite3.Connection, where: ExecutionFilter, parameters: Parameters) -> Lead:
    """All ways in which a text is found."""
    names = json.loads(parameters["named"])
    if len(names) > MOST_NAMES:
        return _NEWEST  # many workflows are meant: one walk over all is short
    lanes = [Lane("of_key"), Lane("tag_value"), *_of_workflow(where, names)]
    if parameters["first_id"]:
        lanes.append(Lane("of_id"))
    words = [Lane("failed_with", {"word": word}) for word in words_of(where.text or "")]
    if 0 < len(words) <= MOST_WORDS:
        lanes += _shortest(connection, [Lead((word,)) for word in words], parameters).lanes
    return Lead(tuple(lanes))
