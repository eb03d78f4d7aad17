"""Pages of executions: the statements that run the scans of a plan (see ``listing_plan``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

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
from dalsegno.adapters.postgres.store import Row, Transaction
from dalsegno.model.search import id_range, names_workflow, words_of
from dalsegno.ports.archive import ExecutionFilter, Place

MOST_COUNTED = 5000
"""Rows of a plan up to which it is counted; plans with more are all treated as long."""

_END = ("", "")
"""The range of ids for a text that is no prefix of one: it contains none."""


class Question(Struct, frozen=True):
    """A listing request, as the parameters of the statements (see ``statements/listing.sql``)."""

    bounds: tuple[float, float, str]
    checks: tuple[Any, ...]
    ended: tuple[float | None, float | None]


async def page(
    rows: Transaction, where: ExecutionFilter, before: str | Place | None, limit: int
) -> list[Row]:
    """Return rows of ``execution_view``, newest first, as of the transaction's snapshot."""
    place = await _place(rows, before)
    if place is None:
        return []
    names = await _named(rows, where.text) if where.text is not None else ()
    asked = _question(where, place, names)
    rarest_word = await _rarest_word(rows, error_words(where, names))
    plan = await _shortest(rows, plans_of(where, names, rarest_word), asked)
    found = merged([await _scan(rows, scan, asked, limit) for scan in plan.scans], limit)
    views = await rows.fetch("listing.views", found)
    by_id = {view[0]: view for view in views}
    return [by_id[name] for name in found]


async def _place(rows: Transaction, before: str | Place | None) -> Found | None:
    if before is None:
        return math.inf, ""
    if isinstance(before, Place):
        return before.created_at, before.id
    aged = await rows.fetch("listing.age", before)
    return (aged[0][0], before) if aged else None


async def _named(rows: Transaction, text: str) -> tuple[str, ...]:
    names = await rows.fetch("listing.workflows")
    return tuple(name for (name,) in names if names_workflow(text, name))


def _question(where: ExecutionFilter, place: Found, names: Sequence[str]) -> Question:
    text = where.text
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
        *((id_range(text) if text is not None else None) or _END),
        names,
        (words_of(text) if text is not None else ()) or None,
    )
    return Question(bounds(where, place), checks, (where.ended_since, where.ended_until))


async def _rarest_word(rows: Transaction, words: Sequence[str]) -> str | None:
    if not words:
        return None
    [(rarest_word,)] = await rows.fetch("listing.rarest_word", words, MOST_COUNTED)
    return str(rarest_word)


async def _scan(rows: Transaction, scan: IndexScan, asked: Question, limit: int) -> list[Found]:
    names, states = zip(*scan.ranges, strict=True)
    given = (*asked.bounds, limit, names, states, *asked.checks)
    return [(created_at, name) for created_at, name in await rows.fetch(f"listing.{scan.statement}", *given)]


async def _shortest(rows: Transaction, plans: Sequence[IndexPlan], asked: Question) -> IndexPlan:
    choice, count = shortest(plans, MOST_COUNTED), None
    try:
        while True:
            count = await _count(rows, *choice.send(count), asked)  # type: ignore[arg-type]  # begins with None
    except StopIteration as chosen:
        plan: IndexPlan = chosen.value
        return plan


async def _count(rows: Transaction, scan: IndexScan, most: int, asked: Question) -> int:
    """Return how many rows a scan meets, counted up to ``most``."""
    names, states = zip(*scan.ranges, strict=True)
    more = asked.ended if scan.statement == "ended" else ()
    statement = f"listing.count_{scan.statement}"
    [(count,)] = await rows.fetch(statement, *asked.bounds, most, names, states, *more)
    return int(count)
