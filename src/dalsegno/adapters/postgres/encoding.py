"""Transitions as the composite types of ``schema/0002_types.sql``, and outcomes back from them.

A frozen value of the model becomes a tuple of its fields in their order; an effect becomes one wide tuple in which
the fields of other kinds are None. Nothing here looks into a payload.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import astuple

from dalsegno.adapters.postgres.store import Row
from dalsegno.model.barrier import BarrierSpec, GateSpec, Milestone
from dalsegno.model.effect import (
    AdjustGate,
    CancelTokens,
    CreateExecution,
    EndIfLast,
    EndScope,
    FinishExecution,
    LeaveContext,
    OpenBarrier,
    OpenScope,
    PauseExecution,
    ResolveSlot,
    ResumeExecution,
    SetMilestone,
    SpawnToken,
    StoreOutput,
    WriteOutbox,
)
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import NewExecution
from dalsegno.model.transition import (
    AlreadyApplied,
    Applied,
    Deferred,
    Outcome,
    ReadyToken,
    Stale,
    Transition,
)

Fields = tuple[Any, ...]


def transition_fields(transition: Transition) -> Fields:
    """Raises UnicodeEncodeError where a name is no valid Unicode."""
    park, effects = transition.park, transition.effects
    creates = effects[0].execution if effects and isinstance(effects[0], CreateExecution) else None
    return (
        transition.execution,
        transition.token,
        transition.fence,
        transition.epoch,
        transition.scope,
        transition.digest(),
        transition.worker,
        transition.keep,
        park.due if park is not None else None,
        park.data if park is not None else None,
        park.attempt if park is not None else None,
        _new_execution(creates) if creates is not None else None,
        [astuple(event) for event in transition.events],
        [EFFECTS[type(effect)](effect) for effect in effects],
    )


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


def _effect(
    kind: str,
    scope: str | None = None,
    name: str | None = None,
    number: int | None = None,
    flag: bool | None = None,
    data: bytes | None = None,
    slot_data: bytes | None = None,
    token: Fields | None = None,
    barrier: Fields | None = None,
    milestone: Fields | None = None,
    gate: Fields | None = None,
    finish: Fields | None = None,
    event: Fields | None = None,
    dropped: Fields | None = None,
    used: tuple[int, ...] | None = None,
    nodes: tuple[str, ...] | None = None,
) -> Fields:
    """``ds_effect``: the one place that knows the order of its fields."""
    return (
        kind, scope, name, number, flag, data, slot_data, token, barrier, milestone, gate, finish, event, dropped,
        used, nodes,
    )  # fmt: skip


def _event(event: NewEvent | None) -> Fields | None:
    return astuple(event) if event is not None else None


def _finish(finish: FinishExecution | None) -> Fields | None:
    if finish is None:
        return None
    return (finish.state, astuple(finish.event), finish.output, finish.context, finish.error)


def _barrier(spec: BarrierSpec) -> Fields:
    return (
        spec.id,
        spec.scope,
        spec.node,
        spec.expected,
        astuple(spec.join),
        spec.mode,
        spec.timeout,
        spec.live_at_once,
    )


def _gate(spec: GateSpec) -> Fields:
    return (spec.id, spec.scope, spec.node, spec.open_edges, astuple(spec.closed))


def _milestone(milestone: Milestone | None) -> Fields | None:
    return (milestone.resolved, astuple(milestone.token)) if milestone is not None else None


def _new_execution(new: NewExecution) -> Fields:
    return (
        new.id,
        new.workflow,
        new.version,
        new.definition,
        new.input,
        new.created_at,
        new.priority,
        [name for name, _ in new.tags],
        [value for _, value in new.tags],
        new.idempotency_key,
        new.parent,
        new.relation,
    )


def _resolve_slot(effect: ResolveSlot) -> Fields:
    return _effect(
        "ResolveSlot",
        number=effect.slot,
        flag=effect.live,
        data=effect.data,
        barrier=_barrier(effect.barrier),
        event=_event(effect.waiting),
        dropped=_event(effect.dropped),
    )


def _end_if_last(effect: EndIfLast) -> Fields:
    return _effect(
        "EndIfLast",
        effect.scope,
        effect.key,
        data=effect.left,
        slot_data=effect.slot_data,
        token=astuple(effect.finisher),
        finish=_finish(effect.finish),
        event=_event(effect.event),
    )


EFFECTS: dict[type, Callable[[Any], Fields]] = {
    CreateExecution: lambda effect: _effect("CreateExecution"),
    SpawnToken: lambda effect: _effect("SpawnToken", token=astuple(effect.token)),
    ResolveSlot: _resolve_slot,
    OpenBarrier: lambda effect: _effect(
        "OpenBarrier", barrier=_barrier(effect.barrier), milestone=_milestone(effect.milestone)
    ),
    SetMilestone: lambda effect: _effect(
        "SetMilestone", name=effect.barrier, milestone=_milestone(effect.milestone)
    ),
    OpenScope: lambda effect: _effect("OpenScope", effect.scope, effect.barrier, effect.slot),
    EndScope: lambda effect: _effect(
        "EndScope", effect.scope, flag=effect.trip, data=effect.data, event=_event(effect.event)
    ),
    LeaveContext: lambda effect: _effect("LeaveContext", effect.scope, effect.key, data=effect.data),
    EndIfLast: _end_if_last,
    FinishExecution: lambda effect: _effect("FinishExecution", finish=_finish(effect)),
    AdjustGate: lambda effect: _effect(
        "AdjustGate", number=effect.delta, gate=_gate(effect.gate), used=effect.used
    ),
    StoreOutput: lambda effect: _effect("StoreOutput", name=effect.id, data=effect.data),
    CancelTokens: lambda effect: _effect("CancelTokens", effect.scope, nodes=effect.nodes),
    PauseExecution: lambda effect: _effect("PauseExecution", event=_event(effect.event)),
    ResumeExecution: lambda effect: _effect("ResumeExecution", event=_event(effect.event)),
    WriteOutbox: lambda effect: _effect("WriteOutbox", effect.topic, effect.id, data=effect.data),
}
