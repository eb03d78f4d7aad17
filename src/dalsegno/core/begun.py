"""How an execution stands after its first commit, as far as that is plain without a look at its rows."""

from __future__ import annotations

from typing import NamedTuple

from dalsegno.model.effect import CreateExecution, SpawnToken
from dalsegno.model.execution import ExecutionState, NewExecution
from dalsegno.model.transition import Applied, Transition


class Begun(NamedTuple):
    execution: NewExecution
    state: ExecutionState
    events: int
    """The number of its newest event."""


def begun(first: Transition, outcome: Applied) -> Begun | None:
    """None where its first effects did more than put tokens on their way: arrivals at barriers leave events of their
    own, and some executions end at once."""
    created, *others = first.effects
    if not isinstance(created, CreateExecution) or outcome.ended is not None:
        return None
    if any(type(each) is not SpawnToken for each in others):
        return None
    return Begun(created.execution, "PENDING" if created.pending else "RUNNING", len(first.events))
