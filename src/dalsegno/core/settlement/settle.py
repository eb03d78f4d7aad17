"""Settlement of one transition: refuse it, recognise it as applied, or apply it whole."""

from __future__ import annotations

from collections.abc import Generator

from dalsegno.core.settlement.application import Application
from dalsegno.core.settlement.claims import drop_late, hold_deadline
from dalsegno.core.settlement.effects import APPLY, apply, apply_in_parts
from dalsegno.core.settlement.machines import is_outdated, is_settled
from dalsegno.core.settlement.rows import ExecutionRow, MachineRow, TokenRow, started_mark
from dalsegno.core.settlement.signals import find_in_mailbox, is_asleep, is_awaited
from dalsegno.core.settlement.workspace import Workspace, is_closed, is_over
from dalsegno.model.effect import (
    BeginExecution,
    CreateExecution,
    DeliverToToken,
    Effect,
    HurryToken,
    MarkStarted,
    PauseExecution,
    PostSignal,
    RequestCancel,
    ResumeExecution,
    SettlePromise,
    TakeMessage,
    TakeOrder,
    WakeMachine,
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
    if not _may_settle(transition, token):
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


def _may_settle(transition: Transition, token: TokenRow) -> bool:
    """Return True for the holder of the token, or a person who saw it as it is now."""
    if token.fence != transition.fence:
        return False
    if not transition.hand:
        return token.state == "leased"
    return token.state in UNFINISHED and token.attempt == transition.hand


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
        rows.add_publication(new.id)
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


__all__ = ["APPLY", "LARGE", "Applied", "settle", "settle_in_parts"]
