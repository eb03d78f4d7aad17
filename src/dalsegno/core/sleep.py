"""Waiting without holding anything: the token is parked with what it will put out when it wakes."""

from __future__ import annotations

import msgspec

from dalsegno.core.body import encode
from dalsegno.core.complete import Step, transition_of
from dalsegno.core.context import value
from dalsegno.core.situation import Result, RunRecord, Situation, run_event
from dalsegno.model.transition import Park


def sleep(situation: Situation, due: float, output: Result) -> Step:
    """Success is recorded at wake, before the successor runs."""
    lease = situation.lease
    body = msgspec.structs.replace(situation.body, sleeping=value(output.raw))
    record = RunRecord(lease.ready_at, situation.started_at, lease.attempt, resume_at=due)
    event = run_event("NodeWaiting", situation, record)
    return Step(transition_of(situation, (), (event,), Park(due, encode(body), lease.attempt)), {})
