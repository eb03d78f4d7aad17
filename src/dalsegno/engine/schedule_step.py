"""The step of a schedule's token: what the pure rules need to know is read, and they decide."""

from __future__ import annotations

from dalsegno.core.firing import ScheduleState, decode_state, fire, give_up
from dalsegno.core.schedules import next_after
from dalsegno.errors import DalSegnoError
from dalsegno.model.execution import ENDED
from dalsegno.model.failure import Failure
from dalsegno.model.token import Lease
from dalsegno.model.transition import Transition
from dalsegno.ports.archive import Archive

NOT_THERE_YET = 60.0
"""What was ordered this recently and does not exist yet is still on its way."""


async def schedule_step(archive: Archive, lease: Lease, now: float) -> Transition:
    """For a token of kind ``schedule``, however often it was lost before: doing it again is harmless."""
    try:
        state = decode_state(lease.data)
        next_after(state.spec, now)  # its time zone may be gone
    except DalSegnoError as error:
        return give_up(lease, now, Failure(str(error), error.code, type(error).__name__))
    return fire(state, lease, now, busy=await _busy(archive, state, now))


async def _busy(archive: Archive, state: ScheduleState, now: float) -> bool:
    """Whether what was started last still runs, or is about to."""
    if state.spec.overlap == "allow" or state.execution is None:
        return False
    found = (await archive.states([state.execution])).get(state.execution)
    if found is None:
        return state.fired_at is not None and now - state.fired_at < NOT_THERE_YET
    return found not in ENDED
