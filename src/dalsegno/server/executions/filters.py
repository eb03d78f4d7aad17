"""Filters and pages of executions: the same filter fields in a query and in the body of a bulk action.

A cursor is opaque to callers and stays valid while executions are added.
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Query
from pydantic import BaseModel, Field

from dalsegno.errors import InvalidInput
from dalsegno.model.execution import ExecutionKind, ExecutionState, ExecutionView
from dalsegno.model.ids import LONGEST_ID
from dalsegno.ports.archive import ExecutionFilter, Place

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=500, description="Maximum number of entries.")]
Cursor = Annotated[str | None, Query(max_length=500, description="`next` of the previous page.")]


class Page(BaseModel, Generic[T]):
    """One page of a list. ``next`` is absent on the last page."""

    @classmethod
    def model_parametrized_name(cls, params: tuple[Any, ...]) -> str:
        """Return the name of the page's schema: ``ExecutionInfoPage``."""
        return f"{params[0].__name__}Page"

    items: list[T]
    next: str | None = Field(default=None, description="Give it as `cursor` to get the next page.")


def to_cursor(place: str) -> str:
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def from_cursor(cursor: str | None) -> str | None:
    if cursor is None:
        return None
    try:
        place = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise unknown_cursor() from None
    if "\0" in place:
        raise unknown_cursor()
    return place


def unknown_cursor() -> InvalidInput:
    return InvalidInput("'cursor' was not given out by this server; omit it to start from the beginning")


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
        list[Tag] | None, Query(max_length=20, description="`name=value`; all of them must match.")
    ] = None,
    parent: Annotated[
        str | None, Query(max_length=LONGEST_ID, description="The `id` of their parent execution.")
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
    wrong = next((name + sign + value for name, sign, value in pairs if not sign or not name), None)
    if wrong is not None:
        raise InvalidInput(f"/query/tag: write 'name=value', not {wrong[:100]!r}")
    return tuple(sorted({(name, value) for name, _, value in pairs}))


def seconds_of(moment: datetime | None) -> float | None:
    """Convert to Unix seconds; a time without a zone is UTC."""
    if moment is None:
        return None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


# -- cursors --------------------------------------------------------------------------------------------------


def cursor_after(view: ExecutionView) -> str:
    """Return the cursor of the page after this execution; it stays valid if the execution is removed."""
    return to_cursor(f"{view.created_at!r} {view.id}")


def place_at(cursor: str | None) -> Place | None:
    text = from_cursor(cursor)
    if text is None:
        return None
    moment, _, name = text.partition(" ")
    try:
        return Place(float(moment), name)
    except ValueError:
        raise InvalidInput(
            "'cursor' was not given out by this list; omit it to start from the beginning"
        ) from None
