"""How scripts end: what becomes of their children and tasks, requests to end, and deadlines."""

from __future__ import annotations

from typing import Any

import msgspec

from dalsegno.core.ending import completion_event
from dalsegno.core.orders import order_cancel_children
from dalsegno.core.script_bodies import encode_body
from dalsegno.core.turn import Turn
from dalsegno.lang.effects import ErrorValue
from dalsegno.model.effect import (
    CreateExecution,
    Effect,
    FinishExecution,
    RequestCancel,
    SpawnToken,
    WriteOutbox,
)
from dalsegno.model.event import EventKind, NewEvent
from dalsegno.model.execution import EndState, NewExecution
from dalsegno.model.ids import derive
from dalsegno.model.machine import CancelReason
from dalsegno.model.token import RESUME_PRIORITY, SYSTEM_QUEUE, Lease, NewToken
from dalsegno.model.transition import Transition

CANCEL_GRACE = 30.0
"""Seconds a script may clean up after it was cancelled or timed out."""
CANCELLED = "its parent was cancelled"
TIMED_OUT = "its parent timed out"
FAILED = "its parent failed"


def deadline_token(execution: str, name: str, due: float) -> NewToken:
    return NewToken(
        derive(execution, name),
        "",
        "deadline",
        name,
        b"{}",
        SYSTEM_QUEUE,
        RESUME_PRIORITY,
        live=False,
        due=due,
    )


def ended(execution: str, turn: Turn, now: float) -> list[Effect]:
    """A script ends at its ``return`` or an uncaught throw, whatever still runs: tasks are handed over, children are
    cancelled unless it returned. After a cancellation or a timeout nothing lives on."""
    if turn.cancel == "cancel":
        return _cancelled(execution, now, turn.output, turn.error)
    if turn.cancel == "timeout":
        return [*_timed_out(execution, now, turn.error or _late(None))]
    if turn.error is not None:
        return [order_cancel_children(execution, FAILED), failing(turn.error, now, hand_over=True)]
    event = completion_event(now, turn.output)
    return [FinishExecution("COMPLETED", event, turn.output, hand_over=True)]


def _cancelled(
    execution: str, now: float, output: bytes | None = None, error: ErrorValue | None = None
) -> list[Effect]:
    cause = error or ErrorValue("CancelledError", "the execution was cancelled")
    finish = _finish("CANCELLED", "ExecutionCancelled", cause, now, hand_over=False)
    if error is None and output is not None:
        finish = msgspec.structs.replace(finish, output=output)
    return [order_cancel_children(execution, CANCELLED), finish]


def _timed_out(execution: str, now: float, error: ErrorValue) -> tuple[WriteOutbox, FinishExecution]:
    return order_cancel_children(execution, TIMED_OUT), failing(error, now, hand_over=False)


def _late(timeout: float | None) -> ErrorValue:
    limit = f" of {timeout:g} s" if timeout is not None else ""
    return ErrorValue("TimeoutError", f"the execution did not end within its timeout{limit}")


def failing(error: ErrorValue, now: float, *, hand_over: bool) -> FinishExecution:
    return _finish("FAILED", "ExecutionFailed", error, now, hand_over=hand_over)


def _finish(
    state: EndState, kind: EventKind, error: ErrorValue, now: float, *, hand_over: bool
) -> FinishExecution:
    """The execution keeps the traceback; its event need not have it, too."""
    told = encode_body(error_object(error, traceback=False))
    data = told if error.traceback is None else encode_body(error_object(error))
    event = NewEvent(kind, "", "", now, b'{"error":%b}' % told)
    return FinishExecution(state, event, error=data, hand_over=hand_over)


def error_object(error: ErrorValue, *, traceback: bool = True) -> dict[str, Any]:
    """The error object users see in results."""
    found: dict[str, Any] = {
        "message": error.message,
        "code": error.code,
        "type": error.type or error.code,
        "details": error.data,
        "node": None,
    }
    if error.stack:
        found["stack"] = list(error.stack)
    if error.classes:
        found["classes"] = list(error.classes)
        found["args"] = list(error.args)
    if error.attributes:
        found["attributes"] = error.attributes
    if traceback and error.traceback is not None:
        found["traceback"] = error.traceback
    return found


def fail_script(lease: Lease, error: ErrorValue, now: float) -> Transition:
    """Ends the execution without running its machine: a damaged snapshot, a limit."""
    effects = (order_cancel_children(lease.execution, FAILED), failing(error, now, hand_over=True))
    return Transition(
        lease.execution, effects, (), lease.token, lease.fence, "", lease.live, epoch=lease.epoch
    )


def fail_at_start(new: NewExecution, error: ErrorValue, now: float) -> Transition:
    """An execution whose id somebody holds already, and which cannot be started: it exists, and has failed."""
    started = NewEvent("ExecutionStarted", "", "", now, b'{"input":%b}' % new.input)
    return Transition(new.id, (CreateExecution(new), failing(error, now, hand_over=False)), (started,))


# -- cancellation and timeout ---------------------------------------------------------------------------------


def cancel_script(
    execution: str, now: float, reason: str | None, grace: float, *, repeatable: bool = False
) -> Transition:
    """Throws ``CancelledError`` at the script's await; after the grace, or on a second cancel, it ends. ``repeatable``:
    an order that may be delivered twice, which then counts once."""
    message = f"the execution was cancelled: {reason}" if reason else "the execution was cancelled"
    error = ErrorValue("CancelledError", message)
    finish = _finish("CANCELLED", "ExecutionCancelled", error, now, hand_over=False)
    event = NewEvent("CancelRequested", "", "", now, encode_body({"reason": reason}))
    request = RequestCancel(
        "cancel", event, finish, repeatable, (order_cancel_children(execution, CANCELLED),)
    )
    return Transition(execution, (request, SpawnToken(deadline_token(execution, "grace", now + grace))))


def expire_script(
    lease: Lease, cancel: CancelReason, now: float, timeout: float | None, grace: float
) -> Transition:
    """A deadline has passed: the execution's own, or the grace after a request to end. A script that is cleaning up
    already goes on doing so until its grace is over."""
    late = _late(timeout)
    if lease.node != "grace":
        event = NewEvent("CancelRequested", "", "", now, encode_body({"reason": late.message}))
        children, finish = _timed_out(lease.execution, now, late)
        request = RequestCancel("timeout", event, finish, repeatable=True, owed=(children,))
        effects: list[Effect] = [request, SpawnToken(deadline_token(lease.execution, "grace", now + grace))]
    elif cancel == "cancel":
        effects = _cancelled(lease.execution, now)
    else:
        effects = [*_timed_out(lease.execution, now, late)]
    return Transition(
        lease.execution, tuple(effects), (), lease.token, lease.fence, "", lease.live, epoch=lease.epoch
    )
