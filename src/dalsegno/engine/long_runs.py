"""What a run that takes long tells its watchers while it goes on."""

from __future__ import annotations

from dalsegno.core.body import Body
from dalsegno.core.situation import RunRecord, Situation, encode_record, run_event
from dalsegno.engine.definitions import Definitions
from dalsegno.model.event import NewEvent
from dalsegno.model.token import Lease
from dalsegno.model.transition import Transition


def started_transition(lease: Lease, definitions: Definitions, now: float, ago: float) -> Transition | None:
    """A run that began ``ago`` seconds before ``now``: it is told late, and told when it really was. None if the
    definition is not at hand: then nobody is told."""
    if lease.kind == "task":
        data = encode_record({"attempt": lease.attempt, "started_at": now - ago})
        started = NewEvent("TaskStarted", lease.node, "", now, data, lease.token)
        return Transition(lease.execution, (), (started,))
    program = definitions.cached(lease.definition)
    if program is None:
        return None
    situation = Situation(program.plan, lease, Body(), now, now)
    event = run_event("NodeStarted", situation, RunRecord(lease.ready_at, now - ago, lease.attempt))
    return Transition(lease.execution, (), (event,))
