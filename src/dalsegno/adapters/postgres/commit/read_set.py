"""The rows that a batch of transitions names, collected so that they are read together before the rules run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dalsegno.core.settlement.signals import SIGNAL
from dalsegno.model.effect import (
    AdjustGate,
    AnswerRequest,
    BeginExecution,
    CancelTokens,
    CreateExecution,
    DeliverToToken,
    DropTokens,
    EndIfLast,
    EndScope,
    FinishExecution,
    HurryToken,
    MarkStarted,
    MoveMachine,
    OpenBarrier,
    OpenScope,
    PostSignal,
    RequestCancel,
    ResolveSlot,
    ResumeExecution,
    SaveMachine,
    SetMilestone,
    SettlePromise,
    SpawnToken,
    TakeMessage,
    TakeOrder,
    WakeMachine,
)
from dalsegno.model.ids import resume_token_id, scope_chain
from dalsegno.model.transition import Transition

Key = tuple[str, str]
"""An execution, and a name in it."""


class ReadSet:
    """Keys of rows, by kind.

    ``fresh``: rows about to be created, which hardly ever exist. They are taken as missing; if one does exist, its
    insert fails and the batch is applied again with ``careful``.
    """

    __slots__ = (
        "awaiting",
        "barriers",
        "created",
        "ending",
        "executions",
        "fresh",
        "gates",
        "held_keys",
        "keys",
        "left",
        "machines",
        "orders",
        "scopes",
        "signals",
        "slots",
        "tokens",
        "unfinished",
        "waiting_signals",
    )

    def __init__(self) -> None:
        self.executions: dict[str, None] = {}
        self.created: set[str] = set()
        """Executions that are about to be created."""
        self.ending: set[str] = set()
        """Executions that may end here."""
        self.tokens: set[Key] = set()
        self.fresh: set[Key] = set()
        """Tokens, scopes and barriers; their derived names do not collide."""
        self.scopes: set[Key] = set()
        self.barriers: set[Key] = set()
        self.gates: set[Key] = set()
        self.slots: set[tuple[str, str, int]] = set()
        self.left: set[Key] = set()
        self.unfinished: set[str] = set()
        self.awaiting: set[Key] = set()
        self.machines: set[str] = set()
        self.signals: set[Key] = set()
        self.waiting_signals: set[Key] = set()
        self.held_keys: set[str] = set()
        self.orders: set[str] = set()
        """Entries of the outbox."""
        self.keys: set[str] = set()
        """Limit keys of which a slot becomes free."""

    def has_more(self) -> bool:
        """Return True if anything is wanted beyond what the lock statement reads."""
        return bool(
            self.scopes
            or self.barriers
            or self.gates
            or self.slots
            or self.left
            or self.unfinished
            or self.awaiting
            or self.machines
            or self.signals
            or self.waiting_signals
            or self.held_keys
            or self.orders
        )

    def scope(self, execution: str, scope: str) -> None:
        self.scopes.update((execution, path) for path in scope_chain(scope))


def wanted_by(batch: Iterable[Transition], *, careful: bool) -> ReadSet:
    wanted = ReadSet()
    for step in batch:
        execution = step.execution
        wanted.executions[execution] = None
        if step.token is not None:
            wanted.tokens.add((execution, step.token))
        if step.scope:
            wanted.scope(execution, step.scope)
        if step.park is not None and step.park.awaits is not None and step.park.awaits.startswith(SIGNAL):
            wanted.waiting_signals.add((execution, step.park.awaits.removeprefix(SIGNAL)))
        for effect in step.effects:
            if type(effect) is SpawnToken:  # by far the most frequent
                wanted.fresh.add((execution, effect.token.id))
            elif (note := NOTES.get(type(effect))) is not None:
                note(wanted, execution, effect)
    if careful:
        _look_for_everything(wanted)
    wanted.fresh -= wanted.tokens | wanted.scopes | wanted.barriers
    return wanted


def _look_for_everything(wanted: ReadSet) -> None:
    wanted.tokens |= wanted.fresh
    wanted.scopes |= wanted.fresh
    wanted.barriers |= wanted.fresh
    wanted.fresh = set()
    wanted.created = set()


def _create(wanted: ReadSet, execution: str, _effect: CreateExecution) -> None:
    wanted.created.add(execution)


def _end_if_last(wanted: ReadSet, execution: str, effect: EndIfLast) -> None:
    wanted.fresh.add((execution, effect.finisher.id))
    if effect.scope:
        wanted.scope(execution, effect.scope)
    else:
        wanted.ending.add(execution)
    if effect.finish is not None:
        _finish(wanted, execution, effect.finish)


def _finish(wanted: ReadSet, execution: str, effect: FinishExecution) -> None:
    wanted.ending.add(execution)
    if effect.hand_over:
        wanted.unfinished.add(execution)


def _all_tokens(wanted: ReadSet, execution: str, _effect: object) -> None:
    wanted.unfinished.add(execution)


def _resolve(wanted: ReadSet, execution: str, effect: ResolveSlot) -> None:
    wanted.barriers.add((execution, effect.barrier.id))
    wanted.slots.add((execution, effect.barrier.id, effect.slot))
    wanted.tokens.add((execution, effect.barrier.join.id))


def _open_barrier(wanted: ReadSet, execution: str, effect: OpenBarrier) -> None:
    wanted.fresh.add((execution, effect.barrier.id))


def _set_milestone(wanted: ReadSet, execution: str, effect: SetMilestone) -> None:
    wanted.barriers.add((execution, effect.barrier))


def _open_scope(wanted: ReadSet, execution: str, effect: OpenScope) -> None:
    wanted.fresh.add((execution, effect.scope))


def _end_scope(wanted: ReadSet, execution: str, effect: EndScope) -> None:
    wanted.scope(execution, effect.scope)


def _gate(wanted: ReadSet, execution: str, effect: AdjustGate) -> None:
    wanted.gates.add((execution, effect.gate.id))
    wanted.tokens.add((execution, effect.gate.closed.id))


def _save_machine(wanted: ReadSet, execution: str, effect: SaveMachine) -> None:
    wanted.machines.add(execution)
    wanted.signals.update((execution, taken.signal) for taken in effect.taken)
    wanted.waiting_signals.update((execution, name) for name in effect.wake.signals)


def _move_machine(wanted: ReadSet, execution: str, effect: MoveMachine) -> None:
    wanted.machines.add(execution)
    wanted.tokens.add((execution, resume_token_id(execution, effect.version)))


def _machine(wanted: ReadSet, execution: str, _effect: object) -> None:
    wanted.machines.add(execution)


def _post_signal(wanted: ReadSet, execution: str, effect: PostSignal) -> None:
    wanted.machines.add(execution)
    wanted.signals.add((execution, effect.id))
    wanted.awaiting.add((execution, SIGNAL + effect.name))


def _answer_request(wanted: ReadSet, execution: str, effect: AnswerRequest) -> None:
    wanted.signals.add((execution, effect.id))


def _request_cancel(wanted: ReadSet, execution: str, effect: RequestCancel) -> None:
    wanted.machines.add(execution)
    _finish(wanted, execution, effect.finish)


def _take_order(wanted: ReadSet, _execution: str, effect: TakeOrder) -> None:
    wanted.orders.add(effect.entry)


def _take_message(wanted: ReadSet, execution: str, effect: TakeMessage) -> None:
    wanted.signals.add((execution, effect.id))
    wanted.barriers.update((execution, barrier) for barrier in effect.barriers)
    if effect.scope:
        wanted.scope(execution, effect.scope)


def _one_token(wanted: ReadSet, execution: str, effect: DeliverToToken | HurryToken | MarkStarted) -> None:
    wanted.tokens.add((execution, effect.token))


def _drop(wanted: ReadSet, execution: str, effect: DropTokens) -> None:
    wanted.tokens.update((execution, token) for token in effect.tokens)


NOTES: dict[type, Callable[[ReadSet, str, Any], None]] = {
    CreateExecution: _create,
    EndIfLast: _end_if_last,
    FinishExecution: _finish,
    CancelTokens: _all_tokens,
    BeginExecution: _all_tokens,
    ResumeExecution: _all_tokens,
    ResolveSlot: _resolve,
    OpenBarrier: _open_barrier,
    SetMilestone: _set_milestone,
    OpenScope: _open_scope,
    EndScope: _end_scope,
    AdjustGate: _gate,
    SaveMachine: _save_machine,
    MoveMachine: _move_machine,
    SettlePromise: _machine,
    WakeMachine: _machine,
    PostSignal: _post_signal,
    AnswerRequest: _answer_request,
    RequestCancel: _request_cancel,
    TakeOrder: _take_order,
    TakeMessage: _take_message,
    DeliverToToken: _one_token,
    HurryToken: _one_token,
    MarkStarted: _one_token,
    DropTokens: _drop,
}
