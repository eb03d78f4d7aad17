"""Settlement of one transition: refuse it, recognise it as applied, or apply it whole, one effect after the other."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from dalsegno.core.settlement.application import Application
from dalsegno.core.settlement.barriers import arrive, cancel_barrier, create_barrier, end_slot, set_milestone
from dalsegno.core.settlement.claims import drop_late, hold_deadline
from dalsegno.core.settlement.finish import finish
from dalsegno.core.settlement.machines import (
    is_outdated,
    is_settled,
    judge,
    move_machine,
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
)
from dalsegno.core.settlement.signals import (
    answer_request,
    deliver_to_token,
    find_in_mailbox,
    hurry_token,
    is_asleep,
    is_awaited,
    post_signal,
    take_message,
)
from dalsegno.core.settlement.workspace import Workspace, cancelled_event, is_closed, is_over
from dalsegno.model.barrier import GateSpec
from dalsegno.model.effect import (
    AdjustGate,
    AnswerRequest,
    AppendChunks,
    BeginExecution,
    CancelTokens,
    CreateExecution,
    DeliverToToken,
    DropTokens,
    Effect,
    EndIfLast,
    EndScope,
    FinishExecution,
    HurryToken,
    LeaveContext,
    MarkStarted,
    MoveMachine,
    OpenBarrier,
    OpenScope,
    PauseExecution,
    PostSignal,
    PublishValues,
    ReplaceTags,
    RequestCancel,
    ResolveSlot,
    ResumeExecution,
    SaveMachine,
    SetMilestone,
    SettlePromise,
    SpawnToken,
    StoreOutput,
    TakeMessage,
    TakeOrder,
    WakeMachine,
    WriteOutbox,
)
from dalsegno.model.execution import ENDED, SCRIPTED
from dalsegno.model.token import UNFINISHED
from dalsegno.model.transition import AlreadyApplied, Applied, Outcome, Park, Refused, Stale, Transition

LARGE = 2_000
"""Effects from which on a transition takes so long that it should be settled in parts."""


def settle(transition: Transition, rows: Workspace, now: float) -> Outcome:
    work = _admit(transition, rows, now)
    return apply(work) if isinstance(work, Application) else work


def settle_in_parts(transition: Transition, rows: Workspace, now: float) -> Generator[None, None, Outcome]:
    """Settle as `settle` does, and yield between parts, so that an event loop can do other work."""
    work = _admit(transition, rows, now)
    return (yield from apply_in_parts(work)) if isinstance(work, Application) else work


def _admit(transition: Transition, rows: Workspace, now: float) -> Outcome | Application:
    """Return what applies the transition, or the outcome of one that is not applied."""
    execution = rows.execution(transition.execution)
    if transition.token is None:
        return _admit_command(transition, execution, rows, now)
    if execution is None:
        return Stale("unknown")
    token = rows.token(transition.execution, transition.token)
    if token is None:
        return Stale("finished" if execution.state in ENDED else "unknown")
    try:
        digest = transition.digest()
    except UnicodeEncodeError as error:
        return Refused(f"a name is not valid Unicode: {error}")
    refusal = _refusal(transition, execution, token, digest, rows, now)
    if refusal is not None:
        return refusal
    work = Application(transition, execution, rows, now)
    _release_token(transition, token, digest, work)
    if token.limit_key is not None:
        if token.kind == "start" and token.state == "consumed":
            work.keep_slot(token.limit_key)
        else:
            work.give_up_slot(token.limit_key)
    return work


def _refusal(
    transition: Transition,
    execution: ExecutionRow,
    token: TokenRow,
    digest: bytes,
    rows: Workspace,
    now: float,
) -> Outcome | None:
    hand = transition.hand  # not 0: a person settles the token as it was seen, whoever holds it
    may_settle = token.state == "leased" if not hand else token.state in UNFINISHED and token.attempt == hand
    if not may_settle or token.fence != transition.fence:
        if token.digest == digest:
            return AlreadyApplied()
        return Stale("finished" if execution.state in ENDED else "fence")
    if execution.state in ENDED:
        return Stale("finished", drop_late(token, execution, rows, now))
    if transition.epoch != execution.epoch:
        return Stale("version")
    if token.scope and is_closed(rows, execution.id, token.scope):
        return Stale("scope", drop_late(token, execution, rows, now))
    if execution.kind in SCRIPTED and is_outdated(transition, execution, rows):
        return Stale("version")
    if token.kind == "deadline" and execution.state == "PAUSED":
        hold_deadline(token, rows)
        return Stale("paused")
    return None


def _release_token(transition: Transition, token: TokenRow, digest: bytes, work: Application) -> None:
    """Consume the token, or park it under a new attempt."""
    park = transition.park
    token.owner = None
    token.digest = digest
    if park is None:
        token.state = "consumed"
        token.data = b""
        if token.live:
            work.count(token.scope, -1)
        if token.kind == "resume":
            work.resumed = token.id
            work.machine_row()
    else:
        _park(token, park, work)
    if transition.hand and park is not None:
        token.fence += 1  # a holder that still runs it is late from now on
        work.rows.rewrite_token(token)
    else:
        work.rows.save_token(token)


def _park(token: TokenRow, park: Park, work: Application) -> None:
    token.data = park.data
    token.attempt = park.attempt
    token.due = park.due
    token.queue = park.queue or token.queue
    token.losses = 0
    if park.again:
        token.awaits = None
        work.make_ready(token)
        return
    token.reason = ""
    if park.awaits is not None:
        token.awaits = park.awaits
        token.ready_at = work.now  # the order among those that wait for the same
        if find_in_mailbox(work, token):
            return
    work.park(token)


def _admit_command(
    transition: Transition, execution: ExecutionRow | None, rows: Workspace, now: float
) -> Outcome | Application:
    first = transition.effects[0] if transition.effects else None
    if isinstance(first, CreateExecution):
        if execution is not None:
            return AlreadyApplied()
        execution = _create(first, rows, now)
        return Application(transition, execution, rows, now)
    if execution is None:
        return Stale("unknown")
    if execution.state in ENDED:
        return Stale("finished")
    if transition.scope and is_closed(rows, execution.id, transition.scope):
        return Stale("scope")
    if isinstance(first, TakeMessage) and is_over(rows, execution.id, first):
        return Stale("scope")
    if isinstance(first, PauseExecution) and execution.state == "PENDING":
        return Stale("pending")
    if _changes_nothing(first, execution, rows):
        return AlreadyApplied()
    if execution.kind in SCRIPTED and is_outdated(transition, execution, rows):
        return Stale("version")
    return Application(transition, execution, rows, now)


def _create(effect: CreateExecution, rows: Workspace, now: float) -> ExecutionRow:
    new = effect.execution
    execution = ExecutionRow(
        new.id,
        "PENDING" if effect.pending else "RUNNING",
        new.definition,
        priority=new.priority,
        touched_at=now,
        kind=new.kind,
        notify=new.notify,
    )
    rows.create_execution(execution, new)
    if new.publishes:
        rows.add_publication(new.id, new.publisher, new.published_until)
    if new.kind in SCRIPTED:
        rows.save_machine(MachineRow(new.id))
    return execution


def _changes_nothing(first: Effect | None, execution: ExecutionRow, rows: Workspace) -> bool:
    """Return True for a command whose first effect has been applied before: the whole command is then skipped."""
    match first:
        case BeginExecution(in_line=token):
            lined_up = bool(token) and rows.token(execution.id, token) is not None
            return execution.state != "PENDING" or lined_up
        case PauseExecution():
            return execution.state == "PAUSED"
        case ResumeExecution():
            return execution.state != "PAUSED"
        case PostSignal(id):
            return rows.signal(execution.id, id) is not None
        case SettlePromise(repeatable=True):
            return is_settled(rows, execution.id, first)
        case RequestCancel():
            machine = rows.machine(execution.id)
            return machine is not None and machine.cancel != ""
        case TakeMessage(id):
            return rows.signal(execution.id, id) is not None
        case TakeOrder(entry):
            return not rows.is_owed(entry)
        case MarkStarted():
            return not _is_unmarked_lease(rows, execution.id, first)
        case DeliverToToken():
            return not is_awaited(rows, execution.id, first)
        case HurryToken():
            return not is_asleep(rows, execution.id, first)
        case MoveMachine(definition=definition):
            return execution.definition == definition
        case WakeMachine():
            machine = rows.machine(execution.id)
            return machine is None or machine.resuming or execution.state == "PENDING"
        case _:
            return False


def _is_unmarked_lease(rows: Workspace, execution: str, effect: MarkStarted) -> bool:
    token = rows.token(execution, effect.token)
    return (
        token is not None
        and token.state == "leased"
        and token.fence == effect.fence
        and token.digest != started_mark(effect.fence)
    )


# -- effects --------------------------------------------------------------------------------------------------

PART = 500
"""Effects of a large transition that are applied at a time."""


def apply(work: Application) -> Applied:
    """Record the events of the transition and apply its effects."""
    for event in work.transition.events:
        work.record(event)
    for effect in work.transition.effects:
        APPLY[type(effect)](work, effect)
    return _conclude(work)


def apply_in_parts(work: Application) -> Generator[None, None, Applied]:
    """Apply as `apply` does, and yield between parts of the effects."""
    for event in work.transition.events:
        work.record(event)
    effects = work.transition.effects
    for first in range(0, len(effects), PART):
        for effect in effects[first : first + PART]:
            APPLY[type(effect)](work, effect)
        yield
    return _conclude(work)


def _conclude(work: Application) -> Applied:
    """Apply what depends on all effects together."""
    if work.gates:
        for gate in work.gates.values():
            _close_gate(work, gate)
    if work.counts:
        work.write_counts()
    if work.endings:
        for ending in work.endings:
            _end_if_last(work, ending)
    if work.machine is not None:
        judge(work, work.machine)
    execution = work.execution
    execution.touched_at = work.latest
    work.rows.save_execution(execution)
    ended = execution.state if execution.ended_at is not None else None
    return Applied(
        tuple(work.kept),
        tuple(work.ready),
        ended,  # type: ignore[arg-type]
        work.next_due,
        work.owes,
        tuple(work.events),
    )


def _spawn(work: Application, effect: SpawnToken) -> None:
    new = effect.token
    if new.kind == "resume":
        work.spawned_resume = new.id
        work.machine_row()
    if work.rows.token(work.execution.id, new.id) is None:
        work.spawn(new)


def _created(work: Application, effect: CreateExecution) -> None:
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
        work.give_up_slot(token.limit_key)
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


def _publish(work: Application, effect: PublishValues) -> None:
    work.rows.publish(work.execution.id, effect, work.now)


def _append(work: Application, effect: AppendChunks) -> None:
    work.rows.append_chunks(work.execution.id, effect, work.now)


def _write_outbox(work: Application, effect: WriteOutbox) -> None:
    work.write_outbox(effect)


APPLY: dict[type, Callable[[Application, Any], None]] = {
    SpawnToken: _spawn,
    CreateExecution: _created,
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
    TakeMessage: take_message,
    MarkStarted: _mark_started,
    SaveMachine: save_machine,
    MoveMachine: move_machine,
    SettlePromise: settle_promise,
    PostSignal: post_signal,
    AnswerRequest: answer_request,
    DeliverToToken: deliver_to_token,
    HurryToken: hurry_token,
    RequestCancel: request_cancel,
    DropTokens: _drop_tokens,
    WakeMachine: wake_machine,
    ReplaceTags: _replace_tags,
    PublishValues: _publish,
    AppendChunks: _append,
}
