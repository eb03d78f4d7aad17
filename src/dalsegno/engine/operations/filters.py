"""Filters of executions in the Python API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from dalsegno.engine.times import Moment, read_moment
from dalsegno.model.execution import ExecutionKind, ExecutionState
from dalsegno.ports.archive import ExecutionFilter

Bound = Literal["created_since", "created_until", "ended_since", "ended_until"]


class ExecutionFilters(TypedDict, total=False):
    """Filters that must all match; of several states, kinds or relations one must match."""

    states: Sequence[ExecutionState]
    kinds: Sequence[ExecutionKind]
    """Default: all kinds but schedules."""
    tags: Mapping[str, str]
    parent: str
    relations: Sequence[str]
    created_since: Moment
    created_until: Moment
    """Exclusive."""
    ended_since: Moment
    ended_until: Moment
    text: str
    """The beginning of an id, an idempotency key, part of a workflow's name, a tag's value, or words of an error."""


def filter_of(workflow: str | None, given: ExecutionFilters) -> ExecutionFilter:
    return ExecutionFilter(
        workflow,
        tuple(given.get("states", ())),
        tuple(sorted(given.get("tags", {}).items())),
        given.get("parent"),
        tuple(given.get("kinds", ())),
        tuple(given.get("relations", ())),
        created_since=_moment(given, "created_since"),
        created_until=_moment(given, "created_until"),
        ended_since=_moment(given, "ended_since"),
        ended_until=_moment(given, "ended_until"),
        text=given.get("text"),
    )


def _moment(given: ExecutionFilters, name: Bound) -> float | None:
    moment = given.get(name)
    return None if moment is None else read_moment(moment, f"'{name}'")
