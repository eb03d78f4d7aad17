"""Plans of pages of executions, for SQL stores: which indexes to walk for a filter.

- A filter can be answered by one of several leads. A lead consists of walks, each over lanes of one index from the
  newest row on; their results are merged.
- Of several leads the one with the fewest rows is taken, judged by counting a bounded number of rows of each.
- A store runs the statements ``listing.<statement>`` and ``listing.count_<statement>``.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from msgspec import Struct

from dalsegno.model.execution import ENDED, ExecutionKind, ExecutionState
from dalsegno.model.search import MOST_WORDS, id_range, words_of
from dalsegno.ports.archive import ExecutionFilter

STATES: tuple[ExecutionState, ...] = ("PENDING", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED")
KINDS: tuple[ExecutionKind, ...] = ("graph", "script", "python", "task")
"""Without schedules, which are listed only on request."""

MOST_SORTED = 5000
"""Most rows sorted for one page."""
MOST_NAMES = 20
"""Most workflows walked one by one for a part of their name."""
CLOCKS_APART = 60.0
"""Seconds by which an execution may seem to have ended before it was created."""

IndexRange: TypeAlias = tuple[str, str]
"""The key of a lane, such as a workflow and a state; a walk may use one of the two or none."""
Found: TypeAlias = tuple[float, str]
"""When an execution was created, and its id."""
ONE_LANE: tuple[IndexRange, ...] = (("", ""),)


class IndexScan(Struct, frozen=True):
    """A statement, and the lanes that it walks."""

    statement: str
    lanes: tuple[IndexRange, ...] = ONE_LANE


class IndexPlan(Struct, frozen=True):
    walks: tuple[IndexScan, ...]
    most: float = math.inf
    """Rows that it may meet."""
    sorts: bool = False
    """It reads everything before it returns the first row; then it must be short."""


NEWEST = IndexPlan((IndexScan("newest"),))


def bounds(where: ExecutionFilter, place: Found) -> tuple[float, float, str]:
    """Return the requested time range, since and until, and the id with which the previous page ended."""
    latest = min(
        where.created_until if where.created_until is not None else math.inf,
        where.ended_until + CLOCKS_APART if where.ended_until is not None else math.inf,
    )
    since = where.created_since if where.created_since is not None else -math.inf
    return since, *min(place, (latest, ""))


def merged(walks: Iterable[Iterable[Found]], limit: int) -> list[str]:
    """Return the ids of the newest rows, each once: an execution may be found by several walks."""
    rows = heapq.merge(*walks, reverse=True)
    return [name for _, name in islice(_once(rows), limit)]


def _once(rows: Iterable[Found]) -> Iterator[Found]:
    last: Found | None = None
    for row in rows:
        if row != last:
            yield row
        last = row


def shortest(
    leads: Sequence[IndexPlan], most_counted: int
) -> Generator[tuple[IndexScan, int], int, IndexPlan]:
    """Choose the lead that meets the fewest rows; among long ones the first, and none that sorts.

    Yields walks to be counted, each up to a number of rows; the count is sent in.
    """
    if len(leads) == 1:
        return leads[0]
    best, fewest = next((lead for lead in leads if not lead.sorts), NEWEST), most_counted
    for lead in leads:
        most = int(min(lead.most, fewest))
        count = 0
        for walk in lead.walks:
            if count >= most or walk.statement == "newest":
                count = most
                break
            count += yield walk, most - count
        if count < most:
            best, fewest = lead, count
    return best


def leads_of(where: ExecutionFilter, names: Sequence[str], seldom: str | None) -> list[IndexPlan]:
    """Return all leads that could answer this filter; usually short ones come first.

    ``names``: workflows that the text may mean; ``seldom``: the word of the text that the fewest errors contain.
    """
    if where.awaits_signal:
        return [IndexPlan((IndexScan("awaiting_signal"),), sorts=True)]
    if where.kinds == ("schedule",):
        return [_by_state(where)]  # there are few of them, however many executions have their names
    by_text = [_by_text(where, where.text, names, seldom)] if where.text is not None else []
    return [*by_text, *_narrow_leads(where), *_wide_leads(where)] or [NEWEST]


def _narrow_leads(where: ExecutionFilter) -> Iterator[IndexPlan]:
    if where.parent is not None:
        yield IndexPlan((IndexScan("of_parent", _in_states(where, [where.parent])),))
    for tag in where.tags:
        yield IndexPlan((IndexScan("tagged", (tag,)),))


def _wide_leads(where: ExecutionFilter) -> Iterator[IndexPlan]:
    if where.relations:  # before workflows: retries and reruns are few even of the largest
        yield IndexPlan((IndexScan("in_relation", _in_states(where, where.relations)),))
    if where.workflow is not None:
        yield IndexPlan((IndexScan("of_workflow", _in_states(where, [where.workflow])),))
    if where.states or where.kinds:
        yield _by_state(where)
    if where.ended_since is not None or where.ended_until is not None:
        ended = tuple(("", state) for state in where.states or STATES if state in ENDED)
        yield IndexPlan((IndexScan("ended", ended),) if ended else (), MOST_SORTED, sorts=True)
        yield NEWEST


def _by_state(where: ExecutionFilter) -> IndexPlan:
    return IndexPlan((IndexScan("in_state", _in_states(where, where.kinds or KINDS)),))


def _in_states(where: ExecutionFilter, names: Iterable[str]) -> tuple[IndexRange, ...]:
    return tuple((name, state) for name in names for state in where.states or STATES)


def error_words(where: ExecutionFilter, names: Sequence[str]) -> tuple[str, ...]:
    """Return the words of the text whose rarest one leads to errors; none if no lead needs it."""
    if where.text is None or where.awaits_signal or len(names) > MOST_NAMES:
        return ()
    words = words_of(where.text)
    return words if len(words) <= MOST_WORDS else ()


def _by_text(where: ExecutionFilter, text: str, names: Sequence[str], seldom: str | None) -> IndexPlan:
    """Return the plan with all ways in which a text is found."""
    if len(names) > MOST_NAMES:
        return NEWEST  # many workflows match: one walk over all is short
    walks = [IndexScan("of_key", ((text, ""),)), IndexScan("tag_value", ((text, ""),))]
    if names:
        walks.append(IndexScan("of_workflow", _in_states(where, names)))
    ids = id_range(text)
    if ids is not None:
        walks.append(IndexScan("of_id", (ids,)))
    if seldom is not None:
        walks.append(IndexScan("failed_with", ((seldom, ""),)))
    return IndexPlan(tuple(walks))
