"""Which executions are meant: the same words in a query and in the body of a bulk action."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Query

from dalsegno.errors import InvalidInput
from dalsegno.model.execution import ExecutionKind, ExecutionState, ExecutionView
from dalsegno.ports.archive import ExecutionFilter, Place
from dalsegno.server.pages import from_cursor, to_cursor

LONGEST_TAG = 1201
TEXT = (
    "The beginning of an id (8 characters or more), an idempotency key, part of a workflow's name, the value of a tag, "
    "or words of the error that it failed with."
)

Tag = Annotated[str, Query(max_length=LONGEST_TAG)]
Relation = Annotated[str, Query(max_length=50)]


async def asked_filter(
    workflow: Annotated[
        str | None, Query(max_length=200, description="Only executions of this workflow.")
    ] = None,
    state: Annotated[
        list[ExecutionState] | None,
        Query(max_length=20, description="One of these states; may be given several times."),
    ] = None,
    kind: Annotated[
        list[ExecutionKind] | None, Query(max_length=20, description="Without it: all but schedules.")
    ] = None,
    tag: Annotated[
        list[Tag] | None, Query(max_length=20, description="`name=value`; all of them must fit.")
    ] = None,
    parent: Annotated[
        str | None, Query(max_length=100, description="The `id` of the execution that they come from.")
    ] = None,
    relation: Annotated[
        list[Relation] | None,
        Query(max_length=20, description="retry, rerun, child, started, task or schedule."),
    ] = None,
    created_since: Annotated[datetime | None, Query(description="At this moment or later.")] = None,
    created_until: Annotated[datetime | None, Query(description="Before this moment.")] = None,
    ended_since: Annotated[datetime | None, Query(description="At this moment or later.")] = None,
    ended_until: Annotated[datetime | None, Query(description="Before this moment.")] = None,
    text: Annotated[str | None, Query(min_length=1, max_length=200, description=TEXT)] = None,
) -> ExecutionFilter:
    return ExecutionFilter(
        workflow,
        tuple(dict.fromkeys(state or ())),
        read_tags(tag),
        parent,
        tuple(dict.fromkeys(kind or ())),
        tuple(dict.fromkeys(relation or ())),
        created_since=seconds_of(created_since),
        created_until=seconds_of(created_until),
        ended_since=seconds_of(ended_since),
        ended_until=seconds_of(ended_until),
        text=text,
    )


AskedFilter = Annotated[ExecutionFilter, Depends(asked_filter)]


def read_tags(given: list[str] | None) -> tuple[tuple[str, str], ...]:
    pairs = [each.partition("=") for each in given or ()]
    wrong = next(("".join(pair) for pair in pairs if not pair[1] or not pair[0]), None)
    if wrong is not None:
        raise InvalidInput(f"/query/tag: write 'name=value', not {wrong[:100]!r}")
    return tuple(sorted({(name, value) for name, _, value in pairs}))


def seconds_of(moment: datetime | None) -> float | None:
    """A time without a zone is UTC."""
    if moment is None:
        return None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


# -- places ---------------------------------------------------------------------------------------------------


def cursor_after(view: ExecutionView) -> str:
    """Where the next page begins; it stays valid when this execution is removed."""
    return to_cursor(f"{view.created_at!r} {view.id}")


def place_at(cursor: str | None) -> Place | None:
    text = from_cursor(cursor)
    if text is None:
        return None
    moment, _, name = text.partition(" ")
    try:
        return Place(float(moment), name)
    except ValueError:
        raise InvalidInput("'cursor' is none that this list gave out; leave it away to begin anew") from None
