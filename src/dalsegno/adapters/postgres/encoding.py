"""Transitions as the composite types of ``schema/0002_types.sql``, and outcomes back from them.

A batch travels as one array of tuples, payloads in their places.
"""

from __future__ import annotations

from dalsegno.adapters.flat import Fields, Flattener
from dalsegno.adapters.postgres.store import Row
from dalsegno.model.transition import (
    AlreadyApplied,
    Applied,
    Deferred,
    Outcome,
    ReadyToken,
    Stale,
    Transition,
)

_flattener = Flattener(lambda data: data)


def transition_fields(transition: Transition) -> Fields:
    """``ds_transition``. Raises UnicodeEncodeError where a name is no valid Unicode."""
    return _flattener.transition(transition)


def outcome_of(row: Row, transition: Transition) -> Outcome:
    _, kind, reason, kept, ready, ended, next_due, *_ = row
    match kind:
        case "Applied":
            run = transition.execution
            announced = tuple(ReadyToken(token, run, queue, priority) for token, queue, priority in ready)
            return Applied(tuple(kept), announced, ended, next_due)
        case "AlreadyApplied":
            return AlreadyApplied()
        case "Stale":
            return Stale(reason)
        case _:
            return Deferred()
