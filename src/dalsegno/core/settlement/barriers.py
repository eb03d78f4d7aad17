"""Barriers: slots resolve once, the barrier opens once (L7)."""

from __future__ import annotations

from dalsegno.core.settlement.application import Application, token_row
from dalsegno.core.settlement.rows import BarrierRow, ScopeRow, TokenRow
from dalsegno.model.barrier import BarrierSpec, BarrierState, Milestone
from dalsegno.model.effect import ResolveSlot
from dalsegno.model.event import NewEvent
from dalsegno.model.token import NewToken, WakeReason


def create_barrier(work: Application, spec: BarrierSpec) -> BarrierRow:
    row = BarrierRow(
        work.execution.id, spec.id, spec.scope, spec.node, spec.mode, spec.expected, spec.join.id
    )
    if spec.live_at_once:
        _park_join(work, row, spec)
    work.rows.save_barrier(row)
    return row


def _park_join(work: Application, row: BarrierRow, spec: BarrierSpec) -> None:
    """Park the join token: it counts as live from now on, and the deadline runs."""
    if spec.timeout is not None:
        row.deadline = work.now + spec.timeout
    token = _join_row(work, row, spec.join)
    token.due = row.deadline
    work.park(token)
    work.rows.add_token(token)


def _set_deadline(work: Application, row: BarrierRow, timeout: float) -> None:
    """Give a deadline to a barrier that had none: an arrival from outside brings one."""
    token = work.rows.token(work.execution.id, row.join)
    if token is None or token.state != "parked":
        return
    token.due = row.deadline = work.now + timeout
    work.park(token)
    work.rows.save_token(token)


def _join_row(work: Application, row: BarrierRow, join: NewToken) -> TokenRow:
    token = token_row(work.execution.id, join, "parked", work.now)
    token.barrier = row.id
    work.count(token.scope, 1)
    return token


def arrive(work: Application, effect: ResolveSlot) -> None:
    """Resolve a slot by an edge of a merge or join, live or skipped."""
    spec = effect.barrier
    row = work.rows.barrier(work.execution.id, spec.id)
    if row is None:
        row = create_barrier(work, spec)
    taken = work.rows.has_slot(work.execution.id, spec.id, effect.slot)
    if row.state != "waiting" or taken:
        if effect.dropped is not None:
            work.record(effect.dropped)
        return
    work.rows.add_slot(work.execution.id, spec.id, effect.slot, effect.live, effect.data)
    row.resolved += 1
    if effect.live:
        row.live += 1
        if row.live == 1:
            _park_join(work, row, spec)
        elif row.deadline is None and spec.timeout is not None:
            _set_deadline(work, row, spec.timeout)
    still_waiting = not _judge(work, row, spec)
    if still_waiting and effect.waiting is not None:
        work.record(effect.waiting, row.live, row.expected)
    work.rows.save_barrier(row)


def _judge(work: Application, row: BarrierRow, spec: BarrierSpec) -> bool:
    """Return True if the slot just resolved has decided the barrier, which is then a tombstone."""
    if row.live and (row.resolved >= row.expected or row.mode == "any"):
        _open(work, row, "open", "open")
    elif row.resolved >= row.expected:
        row.state = "dead"
        token = _join_row(work, row, spec.join)
        token.reason = "dead"
        work.make_ready(token)
        work.rows.add_token(token)
    else:
        return False
    return True


def end_slot(work: Application, scope: ScopeRow, data: bytes, trip: bool, event: NewEvent | None) -> None:
    """Resolve the slot of an ended item's scope in the split's barrier."""
    row = work.rows.barrier(work.execution.id, scope.barrier)
    if row is None or row.state != "waiting":
        return
    work.rows.add_slot(work.execution.id, row.id, scope.slot, True, data)
    row.resolved += 1
    row.live += 1
    if trip:
        _open(work, row, "tripped", "tripped")
    elif row.resolved >= row.expected:
        _open(work, row, "open", "open")
    else:
        _reach_milestone(work, row)
        if event is not None:
            work.record(event, row.resolved, row.expected)
    work.rows.save_barrier(row)


def _open(work: Application, row: BarrierRow, state: BarrierState, reason: WakeReason) -> None:
    row.state = state
    token = work.rows.token(work.execution.id, row.join)
    if token is None or token.state != "parked":
        return
    token.reason = reason
    token.due = None
    work.make_ready(token)
    work.rows.save_token(token)


def set_milestone(work: Application, row: BarrierRow, milestone: Milestone) -> None:
    token = token_row(work.execution.id, milestone.token, "parked", work.now)
    work.rows.add_token(token)
    row.milestone_at, row.milestone_token = milestone.resolved, token.id
    _reach_milestone(work, row)
    work.rows.save_barrier(row)


def _reach_milestone(work: Application, row: BarrierRow) -> None:
    if row.milestone_at is None or row.milestone_token is None or row.resolved < row.milestone_at:
        return
    token = work.rows.token(work.execution.id, row.milestone_token)
    row.milestone_at = row.milestone_token = None
    if token is not None and token.state == "parked":
        work.make_ready(token)
        work.rows.save_token(token)


def cancel_barrier(work: Application, barrier: str) -> None:
    row = work.rows.barrier(work.execution.id, barrier)
    if row is not None and row.state == "waiting":
        row.state = "cancelled"
        work.rows.save_barrier(row)
