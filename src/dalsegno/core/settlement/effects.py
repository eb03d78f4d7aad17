"""The effects on the rows of an execution, one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from dalsegno.core.settlement.barriers import arrive, cancel_barrier, create_barrier, end_slot, set_milestone
from dalsegno.core.settlement.claims import resume_execution
from dalsegno.core.settlement.finish import finish
from dalsegno.core.settlement.limits import give_up_slot
from dalsegno.core.settlement.machines import (
    judge,
    request_cancel,
    save_machine,
    settle_promise,
    wake_machine,
)
from dalsegno.core.settlement.rows import (
    ExecutionRow,
    GateRow,
    MachineRow,
    ScopeRow,
    TokenRow,
    started_mark,
    token_row,
)
from dalsegno.core.settlement.signals import deliver_to_token, hurry_token, post_signal
from dalsegno.core.settlement.workspace import Workspace, cancelled_event
from dalsegno.model.barrier import GateSpec
from dalsegno.model.effect import (
    AdjustGate,
    BeginExecution,
    CancelTokens,
    CreateExecution,
    DeliverToToken,
    DropTokens,
    EndIfLast,
    EndScope,
    FinishExecution,
    HurryToken,
    LeaveContext,
    MarkStarted,
    OpenBarrier,
    OpenScope,
    PauseExecution,
    PostSignal,
    ReplaceTags,
    RequestCancel,
    ResolveSlot,
    ResumeExecution,
    SaveMachine,
    SetMilestone,
    SettlePromise,
    SpawnToken,
    StoreOutput,
    TakeOrder,
    WakeMachine,
    WriteOutbox,
)
from dalsegno.model.event import NewEvent
from dalsegno.model.token import UNFINISHED, NewToken
from dalsegno.model.transition import Applied, ReadyToken, Transition


class Application:
    """One transition being applied: counters are summed here and written once at the end."""

    __slots__ = (
        "counts",
        "earliest",
        "endings",
        "execution",
        "gates",
        "kept",
        "latest",
        "machine",
        "next_due",
        "now",
        "owes",
        "ready",
        "resumed",
        "rows",
        "spawned_resume",
        "transition",
        "wake",
    )

    def __init__(self, transition: Transition, execution: ExecutionRow, rows: Workspace, now: float) -> None:
        self.transition = transition
        self.execution = execution
        self.rows = rows
        self.now = now
        self.earliest = execution.touched_at if execution.seq else 0.0
        self.latest = max(now, self.earliest)
        """Events are dated between the previous commit and this one, whatever the clocks of processes show."""
        self.counts: dict[str, int] = {}
        self.gates: dict[str, GateSpec] = {}
        self.endings: list[EndIfLast] = []
        self.kept: list[str] = []
        self.ready: list[ReadyToken] = []
        self.next_due: float | None = None
        self.machine: MachineRow | None = None
        """The script's machine, once an effect concerns it."""
        self.resumed: str | None = None
        """The resume token that this transition consumes."""
        self.spawned_resume: str | None = None
        self.owes = False
        self.wake = False
        """The machine is to be resumed, whatever it waits for."""

    def run(self) -> Applied:
        for event in self.transition.events:
            self.record(event)
        for effect in self.transition.effects:
            APPLY[type(effect)](self, effect)
        for gate in self.gates.values():
            _close_gate(self, gate)
        if self.counts:
            self.write_counts()
        for ending in self.endings:
            _end_if_last(self, ending)
        if self.machine is not None:
            judge(self, self.machine)
        execution = self.execution
        execution.touched_at = self.latest
        self.rows.save_execution(execution)
        ended = execution.state if execution.ended_at is not None else None
        return Applied(tuple(self.kept), tuple(self.ready), ended, self.next_due, self.owes)  # type: ignore[arg-type]

    def record(self, event: NewEvent, arrived: int | None = None, expected: int | None = None) -> None:
        execution = self.execution
        execution.seq += 1
        if not self.earliest <= event.at <= self.latest:
            event = replace(event, at=max(min(event.at, self.latest), self.earliest))
        self.earliest = event.at
        self.rows.add_event(execution.id, execution.seq, event, arrived, expected)

    def machine_row(self) -> MachineRow | None:
        """Return the machine, which is judged and saved once all effects are applied."""
        if self.machine is None:
            self.machine = self.rows.machine(self.execution.id)
        return self.machine

    def count(self, scope: str, delta: int) -> None:
        """Add to a live counter. The root's is at hand; those of items are summed, so that each row is fetched once."""
        if not scope:
            self.execution.live += delta
        else:
            self.counts[scope] = self.counts.get(scope, 0) + delta

    def write_counts(self) -> None:
        for scope, delta in self.counts.items():
            row = self.rows.scope(self.execution.id, scope) if delta else None
            if row is not None:
                row.live += delta
                self.rows.save_scope(row)
        self.counts.clear()

    def live(self, scope: str) -> int:
        if not scope:
            return self.execution.live
        row = self.rows.scope(self.execution.id, scope)
        return row.live if row is not None else 0

    def park(self, token: TokenRow) -> None:
        """Park the token until its due time; if that has passed, make it ready."""
        token.state = "parked"
        if token.due is not None:
            self.due(token.due)

    def due(self, due: float) -> None:
        if self.next_due is None or due < self.next_due:
            self.next_due = due

    def write_outbox(self, order: WriteOutbox) -> None:
        self.owes = True
        self.rows.add_outbox(self.execution.id, order.id, order.topic, order.data)

    def make_ready(self, token: TokenRow) -> None:
        """Make the token ready, or held while the execution is paused."""
        token.ready_at = self.now
        if self.execution.state == "PAUSED":
            token.state = "held"
            return
        token.state = "ready"
        self.ready.append(ReadyToken(token.id, token.execution, token.queue, token.priority))

    def end_pause(self, event: NewEvent) -> None:
        self.record(event)
        for token in resume_execution(self.execution, self.rows, self.now):
            if token.state == "ready":
                self.ready.append(ReadyToken(token.id, token.execution, token.queue, token.priority))
            elif token.due is not None:
                self.due(token.due)

    def _may_keep(self, new: NewToken) -> bool:
        """Return False for a token with a limit key: it must queue for its slot."""
        return new.id in self.transition.keep and new.limit_key is None and self.execution.state == "RUNNING"

    def spawn(self, new: NewToken) -> TokenRow:
        """Add a new token, which counts for its scope from now on."""
        row = token_row(self.execution.id, new, "ready", self.now)
        if new.kind in ("task", "timer") and not new.priority:
            row.priority = self.execution.priority
        if new.live:
            self.count(new.scope, 1)
        if new.due is not None:
            self.park(row)
        elif self._may_keep(new):
            row.state, row.owner, row.fence = "leased", self.transition.worker, 1
            self.kept.append(new.id)
        else:
            self.make_ready(row)
        self.rows.add_token(row)
        return row


def _spawn(work: Application, effect: SpawnToken) -> None:
    if effect.token.kind == "resume":
        work.spawned_resume = effect.token.id
        work.machine_row()
    if work.rows.token(work.execution.id, effect.token.id) is None:
        work.spawn(effect.token)


def _create(work: Application, effect: CreateExecution) -> None:
    """Do nothing: the start command's own handling created the row."""


def _begin(work: Application, effect: BeginExecution) -> None:
    """Begin a pending execution, by its start token or a trigger; the other's token is dropped.

    Nothing else is live before.
    """
    for token in list(work.rows.unfinished_tokens(work.execution.id)):
        if token.kind == "start" and token.id != effect.in_line:
            _cancel(work, token)
    if not effect.in_line:
        work.execution.state = "RUNNING"
    if effect.input is not None:
        work.rows.replace_input(work.execution.id, effect.input)


def _resolve(work: Application, effect: ResolveSlot) -> None:
    arrive(work, effect)


def _open_barrier(work: Application, effect: OpenBarrier) -> None:
    if work.rows.barrier(work.execution.id, effect.barrier.id) is None:
        row = create_barrier(work, effect.barrier)
        if effect.milestone is not None:
            set_milestone(work, row, effect.milestone)


def _set_milestone(work: Application, effect: SetMilestone) -> None:
    row = work.rows.barrier(work.execution.id, effect.barrier)
    if row is not None and row.state == "waiting":
        set_milestone(work, row, effect.milestone)


def _open_scope(work: Application, effect: OpenScope) -> None:
    if work.rows.scope(work.execution.id, effect.scope) is None:
        work.rows.save_scope(ScopeRow(work.execution.id, effect.scope, effect.barrier, effect.slot))


def _end_scope(work: Application, effect: EndScope) -> None:
    row = work.rows.scope(work.execution.id, effect.scope)
    if row is None or row.ended:
        return
    row.ended = True
    work.rows.save_scope(row)
    end_slot(work, row, effect.data, effect.trip, effect.event)


def _leave(work: Application, effect: LeaveContext) -> None:
    work.rows.add_left(work.execution.id, effect.scope, effect.key, effect.data)


def _defer_ending(work: Application, effect: EndIfLast) -> None:
    work.endings.append(effect)


def _end_if_last(work: Application, effect: EndIfLast) -> None:
    if work.execution.ended_at is not None:
        return
    rows, execution = work.rows, work.execution.id
    empty = work.live(effect.scope) == 0
    knows_ending = effect.finish is not None or effect.slot_data is not None
    if empty and knows_ending and not rows.has_left(execution, effect.scope):
        if effect.finish is not None:
            finish(work, effect.finish)
        elif effect.slot_data is not None:
            _end_scope(work, EndScope(effect.scope, effect.slot_data, event=effect.event))
        return
    if effect.left is not None:
        rows.add_left(execution, effect.scope, effect.key, effect.left)
    if empty and rows.token(execution, effect.finisher.id) is None:
        work.spawn(effect.finisher)
        work.write_counts()


def _adjust_gate(work: Application, effect: AdjustGate) -> None:
    spec = effect.gate
    row = work.rows.gate(work.execution.id, spec.id)
    if row is None:
        row = GateRow(work.execution.id, spec.id, spec.open_edges)
    row.count += effect.delta
    if effect.used:
        row.used = row.used.union(effect.used)
    work.rows.save_gate(row)
    work.gates[spec.id] = spec


def _close_gate(work: Application, spec: GateSpec) -> None:
    """Judge gates by the sum of all adjustments: an edge that becomes a visit in one transition closes nothing."""
    row = work.rows.gate(work.execution.id, spec.id)
    if row is not None and row.count == 0 and work.rows.token(work.execution.id, spec.closed.id) is None:
        work.spawn(spec.closed)


def _store_output(work: Application, effect: StoreOutput) -> None:
    work.rows.add_output(work.execution.id, effect.id, effect.data)


def _cancel_tokens(work: Application, effect: CancelTokens) -> None:
    nodes = frozenset(effect.nodes)
    for token in list(work.rows.unfinished_tokens(work.execution.id, effect.scope)):
        if token.node in nodes and token.id != work.transition.token:
            _cancel(work, token)


def _cancel(work: Application, token: TokenRow) -> None:
    if token.live:
        work.count(token.scope, -1)
    event = cancelled_event(token.kind, token.live, token.node, token.scope, token.id, work.now)
    if event is not None:
        work.record(event)
    was_leased = token.state == "leased"
    token.state = "cancelled"
    token.owner = None
    work.rows.save_token(token)
    if was_leased:
        give_up_slot(work, token.limit_key)
        if token.id in work.kept:  # spawned and dropped in one turn: it must not run
            work.kept.remove(token.id)
    if token.barrier is not None:
        cancel_barrier(work, token.barrier)


def _drop_tokens(work: Application, effect: DropTokens) -> None:
    for name in effect.tokens:
        token = work.rows.token(work.execution.id, name)
        if token is not None and token.state in UNFINISHED and token.kind != "resume":
            _cancel(work, token)


def _pause(work: Application, effect: PauseExecution) -> None:
    work.execution.state = "PAUSED"
    work.execution.paused_at = work.now
    work.record(effect.event)


def _resume(work: Application, effect: ResumeExecution) -> None:
    work.end_pause(effect.event)


def _take_order(work: Application, effect: TakeOrder) -> None:
    work.rows.take_order(effect.entry)


def _mark_started(work: Application, effect: MarkStarted) -> None:
    token = work.rows.token(work.execution.id, effect.token)
    if token is not None:
        token.digest = started_mark(effect.fence)
        work.rows.save_token(token)


def _replace_tags(work: Application, effect: ReplaceTags) -> None:
    work.rows.replace_tags(work.execution.id, effect)


def _write_outbox(work: Application, effect: WriteOutbox) -> None:
    work.write_outbox(effect)


APPLY: dict[type, Callable[[Application, Any], None]] = {
    SpawnToken: _spawn,
    CreateExecution: _create,
    BeginExecution: _begin,
    ResolveSlot: _resolve,
    OpenBarrier: _open_barrier,
    SetMilestone: _set_milestone,
    OpenScope: _open_scope,
    EndScope: _end_scope,
    LeaveContext: _leave,
    FinishExecution: finish,
    EndIfLast: _defer_ending,
    AdjustGate: _adjust_gate,
    StoreOutput: _store_output,
    CancelTokens: _cancel_tokens,
    PauseExecution: _pause,
    ResumeExecution: _resume,
    WriteOutbox: _write_outbox,
    TakeOrder: _take_order,
    MarkStarted: _mark_started,
    SaveMachine: save_machine,
    SettlePromise: settle_promise,
    PostSignal: post_signal,
    DeliverToToken: deliver_to_token,
    HurryToken: hurry_token,
    RequestCancel: request_cancel,
    DropTokens: _drop_tokens,
    WakeMachine: wake_machine,
    ReplaceTags: _replace_tags,
}
