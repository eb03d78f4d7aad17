"""Pages of executions: which index to walk for a filter, and how walks become one page.

A filter is answered by one of several leads. A lead is some walks, each over lanes of one index from the newest row on;
what they find is merged. Where several leads would do, the one with the fewest rows to look at is taken, as far as
counting a few rows of each tells.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct

from dalsegno.adapters.postgres.store import Row, Transaction
from dalsegno.model.execution import ENDED, ExecutionKind, ExecutionState
from dalsegno.model.search import MOST_WORDS, id_range, names_workflow, words_of
from dalsegno.ports.archive import ExecutionFilter, Place

STATES: tuple[ExecutionState, ...] = ("PENDING", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED")
KINDS: tuple[ExecutionKind, ...] = ("graph", "script", "python", "task")
"""Without schedules, which are listed only where they are asked for."""

MOST_COUNTED = 5000
"""Rows of a lead that are counted; one with more is long, and as good as any other long one."""
MOST_SORTED = 5000
"""Rows that may be sorted for one page."""
MOST_NAMES = 20
"""Workflows that are walked one by one for a part of their name."""
CLOCKS_APART = 60.0
"""Seconds by which an execution may seem to have ended before it was created."""

Lane = tuple[str, str]
Found = tuple[float, str]
_END = ("", "")
"""Of no id."""


class Walk(Struct, frozen=True):
    """A statement, and the lanes that it leads by."""

    statement: str
    lanes: tuple[Lane, ...]


class Lead(Struct, frozen=True):
    walks: tuple[Walk, ...]
    most: int = MOST_COUNTED
    sorts: bool = False
    """Whether it looks at everything before the first row; then it must be short."""


class Question(Struct, frozen=True):
    """What is asked, as the parameters of the statements (see ``statements/listing.sql``)."""

    bounds: tuple[float, float, str]
    checks: tuple[Any, ...]
    ended: tuple[float | None, float | None]
    names: tuple[str, ...]
    """Workflows that the text may mean."""


async def page(
    rows: Transaction, where: ExecutionFilter, before: str | Place | None, limit: int
) -> list[Row]:
    """Rows of ``execution_view``, newest first, as of the moment that the transaction sees."""
    place = await _place(rows, before)
    if place is None:
        return []
    asked = await _question(rows, where, place)
    lead = await _shortest(rows, await _leads(rows, where, asked), asked)
    walks = [await _walk(rows, walk, asked, limit) for walk in lead.walks]
    found = list(islice(_once(heapq.merge(*walks, reverse=True)), limit))
    views = await rows.fetch("listing.views", [name for _, name in found])
    by_id = {view[0]: view for view in views}
    return [by_id[name] for _, name in found]


async def _place(rows: Transaction, before: str | Place | None) -> Found | None:
    if before is None:
        return math.inf, ""
    if isinstance(before, Place):
        return before.created_at, before.id
    aged = await rows.fetch("listing.age", before)
    return (aged[0][0], before) if aged else None


async def _walk(rows: Transaction, walk: Walk, asked: Question, limit: int) -> list[Found]:
    names, states = zip(*walk.lanes, strict=True)
    given = (*asked.bounds, limit, names, states, *asked.checks)
    return [(created_at, name) for created_at, name in await rows.fetch(f"listing.{walk.statement}", *given)]


def _once(rows: Iterable[Found]) -> Iterator[Found]:
    """An execution may be found in several ways; its rows come one after the other."""
    last: Found | None = None
    for row in rows:
        if row != last:
            yield row
        last = row


# -- filters as parameters ------------------------------------------------------------------------------------


async def _question(rows: Transaction, where: ExecutionFilter, place: Found) -> Question:
    latest = min(
        where.created_until if where.created_until is not None else math.inf,
        where.ended_until + CLOCKS_APART if where.ended_until is not None else math.inf,
    )
    until, mark = min(place, (latest, ""))
    since = where.created_since if where.created_since is not None else -math.inf
    text = where.text
    first_id, last_id = (id_range(text) if text is not None else None) or _END
    names = await _named(rows, text) if text is not None else ()
    tags = list(zip(*where.tags, strict=True)) if where.tags else (None, None)
    checks = (
        where.workflow,
        where.states or None,
        where.parent,
        where.kinds or None,
        where.relations or None,
        where.ended_since,
        where.ended_until,
        *tags,
        text,
        first_id,
        last_id,
        names,
        (words_of(text) if text is not None else ()) or None,
    )
    return Question((since, until, mark), checks, (where.ended_since, where.ended_until), names)


async def _named(rows: Transaction, text: str) -> tuple[str, ...]:
    names = await rows.fetch("listing.workflows")
    return tuple(name for (name,) in names if names_workflow(text, name))


# -- leads ----------------------------------------------------------------------------------------------------


async def _shortest(rows: Transaction, leads: Sequence[Lead], asked: Question) -> Lead:
    """The one that meets the fewest rows; among long ones the first, and none that sorts."""
    if len(leads) == 1:
        return leads[0]
    best, fewest = next((lead for lead in leads if not lead.sorts), NEWEST), MOST_COUNTED
    for lead in leads:
        most = min(lead.most, fewest)
        count = await _count(rows, lead, asked, most)
        if count < most:
            best, fewest = lead, count
    return best


async def _count(rows: Transaction, lead: Lead, asked: Question, most: int) -> int:
    """How many rows it meets, as far as that is less than ``most``."""
    found = 0
    for walk in lead.walks:
        if found >= most or walk.statement == "newest":
            return most
        names, states = zip(*walk.lanes, strict=True)
        given = (*asked.bounds, most - found, names, states)
        more = asked.ended if walk.statement == "ended" else ()
        [(count,)] = await rows.fetch(f"listing.count_{walk.statement}", *given, *more)
        found += count
    return found


NEWEST = Lead((Walk("newest", (("", ""),)),))


async def _leads(rows: Transaction, where: ExecutionFilter, asked: Question) -> list[Lead]:
    """All that could answer this filter; those that are usually short come first."""
    if where.awaits_signal:
        return [Lead((Walk("awaiting_signal", (("", ""),)),), sorts=True)]
    if where.kinds == ("schedule",):
        return [_by_state(where)]  # there are few of them, however many executions have their names
    by_text = [await _by_text(rows, where, asked)] if where.text is not None else []
    return [*by_text, *_narrow_leads(where), *_wide_leads(where)] or [NEWEST]


def _narrow_leads(where: ExecutionFilter) -> Iterator[Lead]:
    if where.parent is not None:
        yield Lead((Walk("of_parent", _in_states(where, [where.parent])),))
    for tag in where.tags:
        yield Lead((Walk("tagged", (tag,)),))


def _wide_leads(where: ExecutionFilter) -> Iterator[Lead]:
    if where.relations:  # before workflows: retries and reruns are few even of the largest
        yield Lead((Walk("in_relation", _in_states(where, where.relations)),))
    if where.workflow is not None:
        yield Lead((Walk("of_workflow", _in_states(where, [where.workflow])),))
    if where.states or where.kinds:
        yield _by_state(where)
    if where.ended_since is not None or where.ended_until is not None:
        ended = tuple(("", state) for state in where.states or STATES if state in ENDED)
        yield Lead((Walk("ended", ended),) if ended else (), MOST_SORTED, sorts=True)
        yield NEWEST


def _by_state(where: ExecutionFilter) -> Lead:
    return Lead((Walk("in_state", _in_states(where, where.kinds or KINDS)),))


def _in_states(where: ExecutionFilter, names: Iterable[str]) -> tuple[Lane, ...]:
    return tuple((name, state) for name in names for state in where.states or STATES)


async def _by_text(rows: Transaction, where: ExecutionFilter, asked: Question) -> Lead:
    """All ways in which a text is found."""
    text = where.text or ""
    if len(asked.names) > MOST_NAMES:
        return NEWEST  # many workflows are meant: one walk over all is short
    walks = [Walk("of_key", ((text, ""),)), Walk("tag_value", ((text, ""),))]
    if asked.names:
        walks.append(Walk("of_workflow", _in_states(where, asked.names)))
    ids = id_range(text)
    if ids is not None:
        walks.append(Walk("of_id", (ids,)))
    words = words_of(text)
    if 0 < len(words) <= MOST_WORDS:
        [(seldom,)] = await rows.fetch("listing.seldom_word", words, MOST_COUNTED)
        walks.append(Walk("failed_with", ((seldom, ""),)))
    return Lead(tuple(walks))
