"""Transitions as plain tuples, for stores that decide inside a server and restate the rules there.

A frozen value of the model becomes a tuple of its fields in their order; an effect becomes one wide tuple in which
the fields of other kinds are None. Payloads pass through ``payload``, which a store chooses: the
bytes themselves, or a reference to them. Nothing here looks into one.

These stores run graphs so far: what belongs to scripts, signals and children is refused here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dalsegno.errors import InvalidInput
from dalsegno.model.barrier import BarrierSpec, GateSpec, Milestone
from dalsegno.model.effect import (
    AdjustGate,
    CancelTokens,
    CreateExecution,
    Effect,
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
from dalsegno.model.token import NewToken
from dalsegno.model.transition import Transition

Fields = tuple[Any, ...]
Payload = Callable[[bytes | None], Any]


class UnsupportedTransition(InvalidInput):
    """The store does not know yet what this transition is about."""


def _unsupported(what: str) -> UnsupportedTransition:
    return UnsupportedTransition(f"this store cannot hold {what} yet: use a SQLite or memory store for it")


class Flattener:
    """Turns transitions into tuples, sending every payload through ``payload``."""

    def __init__(self, payload: Payload) -> None:
        self._payload = payload

    def transition(self, transition: Transition) -> Fields:
        """Raises UnicodeEncodeError where a name is no valid Unicode, and UnsupportedTransition."""
        park, effects = transition.park, transition.effects
        if park is not None and park.awaits is not None:
            raise _unsupported("a token that waits for a signal or a child")
        if park is not None and park.queue is not None:
            raise _unsupported("a token that moves to another queue")
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
            self._payload(park.data) if park is not None else None,
            park.attempt if park is not None else None,
            self._new_execution(creates) if creates is not None else None,
            [self._event(event) for event in transition.events],
            [self._effect(effect) for effect in effects],
        )

    def _effect(self, effect: Effect) -> Fields:
        flatten = EFFECTS.get(type(effect))
        if flatten is None:
            raise _unsupported(
                f"what {type(effect).__name__} is about (scripts, signals, children, delayed starts)"
            )
        return flatten(self, effect)

    def _token(self, token: NewToken) -> Fields:
        return (
            token.id,
            token.scope,
            token.kind,
            token.node,
            self._payload(token.data),
            token.queue,
            token.priority,
            token.limit_key,
            token.live,
            token.due,
        )

    def _event(self, event: NewEvent | None) -> Fields | None:
        if event is None:
            return None
        return (event.kind, event.node, event.scope, event.at, self._payload(event.data), event.token)

    def _finish(self, finish: FinishExecution | None) -> Fields | None:
        if finish is None:
            return None
        if finish.hand_over:
            raise _unsupported("a script")
        return (
            finish.state,
            self._event(finish.event),
            self._payload(finish.output),
            self._payload(finish.context),
            self._payload(finish.error),
        )

    def _barrier(self, spec: BarrierSpec) -> Fields:
        return (
            spec.id,
            spec.scope,
            spec.node,
            spec.expected,
            self._token(spec.join),
            spec.mode,
            spec.timeout,
            spec.live_at_once,
        )

    def _gate(self, spec: GateSpec) -> Fields:
        return (spec.id, spec.scope, spec.node, spec.open_edges, self._token(spec.closed))

    def _milestone(self, milestone: Milestone | None) -> Fields | None:
        return (milestone.resolved, self._token(milestone.token)) if milestone is not None else None

    def _new_execution(self, new: NewExecution) -> Fields:
        if new.kind != "graph" or new.notify is not None:
            raise _unsupported(f"an execution of kind {new.kind}" if new.kind != "graph" else "a child")
        return (
            new.id,
            new.workflow,
            new.version,
            new.definition,
            self._payload(new.input),
            new.created_at,
            new.priority,
            [name for name, _ in new.tags],
            [value for _, value in new.tags],
            new.idempotency_key,
            new.parent,
            new.relation,
        )

    # -- effects ----------------------------------------------------------------------------------------------

    def spawn_token(self, effect: SpawnToken) -> Fields:
        return _effect("SpawnToken", token=self._token(effect.token))

    def resolve_slot(self, effect: ResolveSlot) -> Fields:
        return _effect(
            "ResolveSlot",
            number=effect.slot,
            flag=effect.live,
            data=self._payload(effect.data),
            barrier=self._barrier(effect.barrier),
            event=self._event(effect.waiting),
            dropped=self._event(effect.dropped),
        )

    def open_barrier(self, effect: OpenBarrier) -> Fields:
        return _effect(
            "OpenBarrier",
            barrier=self._barrier(effect.barrier),
            milestone=self._milestone(effect.milestone),
        )

    def set_milestone(self, effect: SetMilestone) -> Fields:
        return _effect("SetMilestone", name=effect.barrier, milestone=self._milestone(effect.milestone))

    def end_scope(self, effect: EndScope) -> Fields:
        data, event = self._payload(effect.data), self._event(effect.event)
        return _effect("EndScope", effect.scope, flag=effect.trip, data=data, event=event)

    def end_if_last(self, effect: EndIfLast) -> Fields:
        return _effect(
            "EndIfLast",
            effect.scope,
            effect.key,
            data=self._payload(effect.left),
            slot_data=self._payload(effect.slot_data),
            token=self._token(effect.finisher),
            finish=self._finish(effect.finish),
            event=self._event(effect.event),
        )

    def adjust_gate(self, effect: AdjustGate) -> Fields:
        return _effect("AdjustGate", number=effect.delta, gate=self._gate(effect.gate), used=effect.used)

    def leave_context(self, effect: LeaveContext) -> Fields:
        return _effect("LeaveContext", effect.scope, effect.key, data=self._payload(effect.data))

    def store_output(self, effect: StoreOutput) -> Fields:
        return _effect("StoreOutput", name=effect.id, data=self._payload(effect.data))

    def write_outbox(self, effect: WriteOutbox) -> Fields:
        return _effect("WriteOutbox", effect.topic, effect.id, data=self._payload(effect.data))

    def finish_execution(self, effect: FinishExecution) -> Fields:
        return _effect("FinishExecution", finish=self._finish(effect))

    def pause(self, effect: PauseExecution) -> Fields:
        return _effect("PauseExecution", event=self._event(effect.event))

    def resume(self, effect: ResumeExecution) -> Fields:
        return _effect("ResumeExecution", event=self._event(effect.event))

    def cancel_tokens(self, effect: CancelTokens) -> Fields:
        return _effect("CancelTokens", effect.scope, nodes=effect.nodes)

    def open_scope(self, effect: OpenScope) -> Fields:
        return _effect("OpenScope", effect.scope, effect.barrier, effect.slot)

    def create_execution(self, effect: CreateExecution) -> Fields:
        if effect.pending:
            raise _unsupported("an execution that waits to be begun")
        return _effect("CreateExecution")


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
    """The one place that knows the order of an effect's fields."""
    return (
        kind, scope, name, number, flag, data, slot_data, token, barrier, milestone, gate, finish, event, dropped,
        used, nodes,
    )  # fmt: skip


EFFECTS: dict[type, Callable[[Flattener, Any], Fields]] = {
    CreateExecution: Flattener.create_execution,
    SpawnToken: Flattener.spawn_token,
    ResolveSlot: Flattener.resolve_slot,
    OpenBarrier: Flattener.open_barrier,
    SetMilestone: Flattener.set_milestone,
    OpenScope: Flattener.open_scope,
    EndScope: Flattener.end_scope,
    LeaveContext: Flattener.leave_context,
    EndIfLast: Flattener.end_if_last,
    FinishExecution: Flattener.finish_execution,
    AdjustGate: Flattener.adjust_gate,
    StoreOutput: Flattener.store_output,
    CancelTokens: Flattener.cancel_tokens,
    PauseExecution: Flattener.pause,
    ResumeExecution: Flattener.resume,
    WriteOutbox: Flattener.write_outbox,
}
