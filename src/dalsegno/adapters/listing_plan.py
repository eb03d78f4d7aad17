"""Plans of pages of executions, for SQL stores: which indexes to scan for a filter.

- A filter can be answered by one of several plans. A plan consists of scans, each over ranges of one index from the
  newest row on; their results are merged.
- Of several plans the one with the fewest rows is taken, judged by counting a bounded number of rows of each.
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
"""Most workflows scanned one by one for a part of their name."""
CLOCK_DIFFERENCE = 60.0
"""Seconds by which an execution may seem to have ended before it was created."""

IndexRange: TypeAlias = tuple[str, str]
"""The key of a range, such as a workflow and a state; a scan may use one of the two or none."""
Found: TypeAlias = tuple[float, str]
"""When an execution was created, and its id."""
WHOLE_INDEX: tuple[IndexRange, ...] = (("", ""),)


class IndexScan(Struct, frozen=True):
    """A statement, and the ranges that it scans."""

    statement: str
    ranges: tuple[IndexRange, ...] = WHOLE_INDEX


class IndexPlan(Struct, frozen=True):
    scans: tuple[IndexScan, ...]
    most: float = math.inf
    """Rows that it may meet."""
    sorts: bool = False
    """It reads everything before it returns the first row; then it must be short."""


NEWEST = IndexPlan((IndexScan("newest"),))


def bounds(where: ExecutionFilter, place: Found) -> tuple[float, float, str]:
    """Return the requested time range, since and until, and the id with which the previous page ended."""
    latest = min(
        where.created_until if where.created_until is not None else math.inf,
        where.ended_until + CLOCK_DIFFERENCE if where.ended_until is not None else math.inf,
    )
    since = where.created_since if where.created_since is not None else -math.inf
    return since, *min(place, (latest, ""))


def merged(scans: Iterable[Iterable[Found]], limit: int) -> list[str]:
    """Return the ids of the newest rows, each once: an execution may be found by several scans."""
    rows = heapq.merge(*scans, reverse=True)
    return [name for _, name in islice(_once(rows), limit)]


def _once(rows: Iterable[Found]) -> Iterator[Found]:
    last: Found | None = None
    for row in rows:
        if row != last:
            yield row
        last = row


def shortest(
    plans: Sequence[IndexPlan], most_counted: int
) -> Generator[tuple[IndexScan, int], int, IndexPlan]:
    """Choose the plan that meets the fewest rows; among long ones the first, and none that sorts.

    Yields scans to be counted, each up to a number of rows; the count is sent in.
    """
    if len(plans) == 1:
        return plans[0]
    best, least_count = next((plan for plan in plans if not plan.sorts), NEWEST), most_counted
    for plan in plans:
        most = int(min(plan.most, least_count))
        count = 0
        for scan in plan.scans:
            if count >= most or scan.statement == "newest":
                count = most
                break
            count += yield scan, most - count
        if count < most:
            best, least_count = plan, count
    return best


def plans_of(where: ExecutionFilter, names: Sequence[str], rarest_word: str | None) -> list[IndexPlan]:
    """Return all plans that could answer this filter; usually short ones come first.

    ``names``: workflows that the text may mean; ``rarest_word``: the word of the text that the fewest errors contain.
    """
    if where.awaits_signal:
        return [IndexPlan((IndexScan("awaiting_signal"),), sorts=True)]
    if where.kinds == ("schedule",):
        return [_by_state(where)]  # there are few of them, however many executions have their names
    by_text = [_by_text(where, where.text, names, rarest_word)] if where.text is not None else []
    return [*by_text, *_narrow_plans(where), *_wide_plans(where)] or [NEWEST]


def _narrow_plans(where: ExecutionFilter) -> Iterator[IndexPlan]:
    if where.parent is not None:
        yield IndexPlan((IndexScan("of_parent", _in_states(where, [where.parent])),))
    for tag in where.tags:
        yield IndexPlan((IndexScan("tagged", (tag,)),))


def _wide_plans(where: ExecutionFilter) -> Iterator[IndexPlan]:
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
    """Return the words of the text whose rarest one is searched in errors; none if no plan needs it."""
    if where.text is None or where.awaits_signal or len(names) > MOST_NAMES:
        return ()
    words = words_of(where.text)
    return words if len(words) <= MOST_WORDS else ()


def _by_text(where: ExecutionFilter, text: str, names: Sequence[str], rarest_word: str | None) -> IndexPlan:
    """Return the plan with all ways in which a text is found."""
    if len(names) > MOST_NAMES:
        return NEWEST  # many workflows match: one scan over all is short
    scans = [IndexScan("of_key", ((text, ""),)), IndexScan("tag_value", ((text, ""),))]
    if names:
        scans.append(IndexScan("of_workflow", _in_states(where, names)))
    ids = id_range(text)
    if ids is not None:
        scans.append(IndexScan("of_id", (ids,)))
    if rarest_word is not None:
        scans.append(IndexScan("failed_with", ((rarest_word, ""),)))
    return IndexPlan(tuple(scans))
