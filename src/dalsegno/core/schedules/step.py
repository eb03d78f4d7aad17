"""The execution behind a schedule: one token, parked until the next time, that starts an execution and is parked again.

A schedule is therefore as durable as any execution, can be paused and cancelled, and is shared by any number of
processes. Each time fires exactly once: the id of what it starts is derived from the schedule and the time.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from dalsegno.core.graph.ending import completion_event
from dalsegno.core.graph.step_input import encode_record
from dalsegno.core.outbox_orders import StartOrder, order_start
from dalsegno.core.schedules.spec import Delay, Due, ScheduleSpec, due_times, next_after, no_delay
from dalsegno.errors import InternalError
from dalsegno.model.effect import (
    CreateExecution,
    DropTokens,
    Effect,
    FinishExecution,
    SpawnToken,
    WriteOutbox,
)
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import SCHEDULE_RELATION, NewExecution
from dalsegno.model.failure import Failure
from dalsegno.model.ids import derive
from dalsegno.model.token import SYSTEM_QUEUE, Lease, NewToken
from dalsegno.model.transition import Park, Transition

SCHEDULE_NODE = "builtin.schedule"
STARTS_PER_COMMIT = 100
"""Starts in one commit; a schedule with more to make up for needs several."""


class ScheduleState(Struct, frozen=True, omit_defaults=True):
    """The body of a schedule's token."""

    spec: ScheduleSpec
    settled: float
    """Times up to this one have been started or skipped."""
    next: float | None
    revision: int = 0
    """Incremented with every change of the spec."""
    last: float | None = None
    """The newest time that started an execution, and that execution."""
    execution: str | None = None
    fired_at: float | None = None
    """When it was started."""
    started: int = 0
    passed: int = 0


_decoder = msgspec.json.Decoder(ScheduleState)


def decode_state(data: bytes) -> ScheduleState:
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise InternalError(f"the state of a schedule cannot be read: {error}") from error


def encode_state(state: ScheduleState) -> bytes:
    return encode_record(state)


# -- creation and change ----------------------------------------------------------------------------------------


def create_schedule(new: NewExecution, spec: ScheduleSpec, now: float) -> Transition:
    """Return the first transition of a schedule's execution."""
    state = ScheduleState(spec, now, next_after(spec, now))
    started = NewEvent("ExecutionStarted", "", "", now, b'{"input":%b}' % new.input)
    effects = (CreateExecution(new), SpawnToken(_token(new.id, state)))
    return Transition(new.id, effects, (started,))


def change_schedule(
    execution: str, tokens: tuple[str, ...], state: ScheduleState, spec: ScheduleSpec, now: float
) -> Transition:
    """Replace the spec; the new token replaces ``tokens``.

    What was started stays counted. Due times stay due, unless the new spec has other times.
    """
    same = spec.has_same_times(state.spec)
    spec = msgspec.structs.replace(spec, anchor=state.spec.anchor) if same else spec
    settled = state.settled if same else now
    changed = msgspec.structs.replace(
        state, spec=spec, settled=settled, next=next_after(spec, settled), revision=state.revision + 1
    )
    return Transition(execution, (DropTokens(tokens), SpawnToken(_token(execution, changed))))


def _token(execution: str, state: ScheduleState) -> NewToken:
    return NewToken(
        derive(execution, "schedule", str(state.revision)),
        "",
        "schedule",
        SCHEDULE_NODE,
        encode_state(state),
        SYSTEM_QUEUE,
        state.spec.priority,
        live=False,
        due=_due(execution, state),
    )


# -- steps ------------------------------------------------------------------------------------------------------


def fire(state: ScheduleState, lease: Lease, now: float, *, busy: bool = False) -> Transition:
    """Start what is due and park the token until the next time; end the schedule if there is none.

    ``busy``: the last start still runs.
    """
    due = due_times(state.spec, state.settled, now, delay_of(lease.execution, state.spec))
    times = _without_overlap(state.spec, due.times, busy)
    following = _advance(state, due, times, lease.execution, now)
    starts = tuple(_start(lease.execution, state.spec, time) for time in times[:STARTS_PER_COMMIT])
    if following.next is None:
        return _transition(lease, (*starts, _complete(following, now)))
    park = Park(_due(lease.execution, following), encode_state(following), lease.attempt + 1)
    return _transition(lease, starts, park)


def _without_overlap(spec: ScheduleSpec, times: tuple[float, ...], busy: bool) -> tuple[float, ...]:
    """Keep one time only: several starts at once would overlap, too."""
    if spec.overlap == "allow":
        return times
    return () if busy else times[-1:]


def _advance(
    state: ScheduleState, due: Due, times: tuple[float, ...], execution: str, now: float
) -> ScheduleState:
    fired, later = times[:STARTS_PER_COMMIT], times[STARTS_PER_COMMIT:]
    following = msgspec.structs.replace(
        state,
        settled=fired[-1] if later else due.settled,
        next=later[0] if later else due.next,
        started=state.started + len(fired),
        passed=state.passed + due.passed + len(due.times) - len(times),
    )
    if not fired:
        return following
    last = fired[-1]
    return msgspec.structs.replace(following, last=last, execution=started_id(execution, last), fired_at=now)


def give_up(lease: Lease, now: float, failure: Failure) -> Transition:
    """Fail the schedule's execution with the reason why it cannot continue."""
    error = encode_record(failure.as_dict())
    event = NewEvent("ExecutionFailed", "", "", now, b'{"error":%b}' % error)
    return _transition(lease, (FinishExecution("FAILED", event, error=error),))


def _complete(state: ScheduleState, now: float) -> FinishExecution:
    output = encode_record({"started": state.started, "passed": state.passed, "last": iso(state.last)})
    return FinishExecution("COMPLETED", completion_event(now, output), output=output)


def _transition(lease: Lease, effects: tuple[Effect, ...], park: Park | None = None) -> Transition:
    return Transition(
        lease.execution,
        effects,
        (),
        lease.token,
        lease.fence,
        lease.scope,
        lease.live,
        park,
        lease.epoch,
    )


# -- starts -----------------------------------------------------------------------------------------------------


def started_id(execution: str, time: float) -> str:
    """Return the id of the execution that a time of a schedule starts: always the same one."""
    return derive("scheduled", execution, f"{time:.6f}")


def _start(execution: str, spec: ScheduleSpec, time: float) -> WriteOutbox:
    return order_start(order_of(execution, started_id(execution, time), spec, time))


def order_of(execution: str, started: str, spec: ScheduleSpec, time: float) -> StartOrder:
    """Return the order for one start, at a time of the schedule or on request."""
    own = {"schedule": spec.name, "scheduled_at": iso(time) or ""}
    return StartOrder(
        execution=started,
        workflow=spec.workflow,
        input=spec.input,
        version=spec.version,
        parent=execution,
        relation=SCHEDULE_RELATION,
        tags={**dict(spec.tags), **own},
        priority=spec.priority,
    )


def delay_of(execution: str, spec: ScheduleSpec) -> Delay:
    """Return the jitter of each time as a function: deterministic for the schedule and the time."""
    if not spec.jitter:
        return no_delay

    def delay(time: float) -> float:
        return int(derive("jitter", execution, f"{time:.6f}")[:8], 16) / 0x1_0000_0000 * spec.jitter

    return delay


def _due(execution: str, state: ScheduleState) -> float | None:
    time = state.next
    return time + delay_of(execution, state.spec)(time) if time is not None else None


def iso(time: float | None) -> str | None:
    if time is None:
        return None
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
