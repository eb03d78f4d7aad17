"""Rules between commits: whether a ready token may be leased, what a due timer does, what a resume does."""

from __future__ import annotations

from typing import Literal

from dalsegno.core.settlement.rows import ExecutionRow, TokenRow
from dalsegno.core.settlement.workspace import Workspace, cancelled_event, is_closed
from dalsegno.model.execution import ENDED
from dalsegno.model.token import WakeReason
from dalsegno.model.transition import ReadyToken

SUSPECT_LOSSES = 3
"""A token that was lost this often is leased alone, so that no other token is lost with it."""


def claimable(token: TokenRow, rows: Workspace) -> bool:
    """Return True if a ready token may be leased. If not, its state is changed so that claims no longer find it."""
    execution = rows.execution(token.execution)
    disposition = _disposition(token, execution, rows)
    if disposition == "run":
        return True
    if disposition == "hold":
        token.state = "held"
        rows.save_token(token)
    else:
        _drop(token, execution, rows, execution.touched_at if execution is not None else 0.0)
    return False


def _drop(token: TokenRow, execution: ExecutionRow | None, rows: Workspace, now: float) -> None:
    """Drop a token whose execution or scope has ended.

    The sweep records what an ended execution left, so there the token is only hidden. In an ended scope the drop
    is recorded here.
    """
    if execution is not None and execution.state in ENDED:
        token.state = "held"
    else:
        token.state = "cancelled"
        at = max(now, execution.touched_at) if execution is not None else now
        event = cancelled_event(token.kind, token.live, token.node, token.scope, token.id, at)
        if execution is not None and event is not None:
            execution.seq += 1
            execution.touched_at = at
            rows.add_event(execution.id, execution.seq, event, None, None)
            rows.save_execution(execution)
    rows.save_token(token)


def _disposition(
    token: TokenRow, execution: ExecutionRow | None, rows: Workspace
) -> Literal["run", "hold", "drop"]:
    if execution is None or execution.state in ENDED:
        return "drop"
    if token.scope and is_closed(rows, execution.id, token.scope):
        return "drop"
    return "hold" if execution.state == "PAUSED" else "run"


def wake_row(token: TokenRow, rows: Workspace, now: float) -> bool:
    """Wake a due parked token. Return True if it became ready (else it is held, or dropped with its execution)."""
    execution = rows.execution(token.execution)
    disposition = _disposition(token, execution, rows)
    if disposition == "drop":
        _drop(token, execution, rows, now)
        return False
    token.ready_at = now
    if disposition == "hold" and token.kind == "deadline":
        # The execution's own timeout does not count paused time: it keeps its due time until resume moves it.
        token.state = "held"
        rows.save_token(token)
        return False
    token.reason = "timer" if token.barrier is None else _reason_at(token.barrier, token, rows)
    token.awaits = None
    token.state = "held" if disposition == "hold" else "ready"
    rows.save_token(token)
    return token.state == "ready"


def _reason_at(barrier: str, token: TokenRow, rows: Workspace) -> WakeReason:
    """Return the barrier's timeout if it still waits.

    Otherwise the token was parked again after the barrier had woken it, and is woken for the same reason.
    """
    row = rows.barrier(token.execution, barrier)
    if row is None or row.state == "cancelled":
        return "timeout"
    if row.state == "waiting":
        row.state = "timeout"
        rows.save_barrier(row)
    return row.state


def resume_execution(execution: ExecutionRow, rows: Workspace, now: float) -> list[TokenRow]:
    """End a pause: held tokens become ready in due order, deadlines are moved by the length of the pause."""
    paused_for = max(now - execution.paused_at, 0.0) if execution.paused_at is not None else 0.0
    execution.state = "RUNNING"
    execution.paused_at = None
    changed = []
    for token in rows.unfinished_tokens(execution.id):
        if token.kind == "deadline" and token.due is not None and token.state in ("parked", "held"):
            token.due += paused_for
            token.state = "parked"
            changed.append(token)
        elif token.state == "held":
            token.state = "ready"
            changed.append(token)
    changed.sort(key=lambda token: (token.due if token.due is not None else token.ready_at, token.id))
    for order, token in enumerate(changed):
        if token.state == "ready":
            token.ready_at = now + order * 1e-6
        rows.save_token(token)
    return changed


def hold_deadline(token: TokenRow, rows: Workspace) -> None:
    """Hold a deadline that passed at the moment of a pause: no clock of a paused execution runs."""
    token.state = "held"
    token.owner = None
    rows.save_token(token)


def release_row(token: TokenRow, lost: bool, rows: Workspace, now: float) -> None:
    """End a lease without a commit: handed back, or lost with its worker."""
    token.state = "ready"
    token.owner = None
    token.ready_at = now
    if lost:
        token.losses += 1
    rows.save_token(token)
    if token.limit_key is not None:
        rows.free_slot(token.limit_key)


def drop_late(
    token: TokenRow, execution: ExecutionRow, rows: Workspace, now: float
) -> tuple[ReadyToken, ...]:
    """Drop a leased token whose commit came after the end of its scope or execution; return who may take its slot.

    Its run is over, so its slot must not stay taken until the execution ends. The ending may not have seen a lease
    that was given at the same moment, so the lines may not have been opened yet.
    """
    if token.limit_key is None:
        return ()
    token.owner = None
    _drop(token, execution, rows, now)
    return tuple(rows.free_slot(token.limit_key))
