"""Transitions as the composite types of ``schema/0002_types.sql``, and outcomes back from them.

A batch travels as one array of tuples, payloads in their places.
"""

from __future__ import annotations

from dalsegno.adapters.flat import Fields, Flattener
from dalsegno.adapters.postgres.store import Row
from dalsegno.model.effect import EndIfLast, FinishExecution, SpawnToken, StoreOutput, WriteOutbox
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
    return (*_flattener.transition(transition), shape_of(transition))


def shape_of(transition: Transition) -> str:
    """Which way through a commit a transition may go (``functions/06_plain.sql``): ``step``, ``last`` or ``other``."""
    if transition.token is None or transition.scope:
        return "other"
    shape = "step"
    for effect in transition.effects:
        match effect:
            case SpawnToken(token) if not token.scope and shape == "step":
                continue
            case StoreOutput() | WriteOutbox():
                continue
            case EndIfLast(scope="", finish=FinishExecution()) if len(transition.effects) == 1:
                shape = "last" if transition.park is None else "other"
            case _:
                return "other"
    return shape


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
