"""Endings of scripts: their children and tasks, requests to end, and deadlines."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from dalsegno.core.graph.ending import completion_event
from dalsegno.core.outbox_orders import order_cancel_children, order_letter
from dalsegno.core.scripts.token_bodies import encode_body
from dalsegno.core.scripts.turn import Turn
from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.model.effect import (
    CreateExecution,
    Effect,
    FinishExecution,
    RequestCancel,
    SaveMachine,
    WriteOutbox,
)
from dalsegno.model.event import EventKind, NewEvent
from dalsegno.model.execution import EndState, NewExecution
from dalsegno.model.ids import derive
from dalsegno.model.machine import CancelReason, MachineView
from dalsegno.model.token import RESUME_PRIORITY, SYSTEM_QUEUE, Lease, NewToken
from dalsegno.model.transition import Transition

CANCELLED = "its parent was cancelled"
TIMED_OUT = "its parent timed out"
FAILED = "its parent failed"
TERMINATED = "its parent was terminated"
TIMEOUT_MESSAGE = "the execution did not end within its timeout"
GRACE = "grace"
"""Node of the token that ends a clean-up."""


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
    """End a script at its ``return`` or an uncaught throw, even if something is still running. Tasks are handed
    over, children are cancelled unless it returned. After a cancellation or a timeout nothing continues.
    """
    if turn.cancel == "cancel":
        return _cleaned_up(execution, turn, now, _cancelled(execution, now, turn.output, turn.error))
    if turn.cancel == "timeout":
        return _cleaned_up(
            execution, turn, now, _timed_out(execution, now, turn.error or _timeout_error(None))
        )
    if turn.error is not None:
        finish = failing(turn.error, now, hand_over=True)
        reason = _no_cleanup(turn.error) if turn.is_unfinished else None
        kept = _keeping(execution, finish, turn.kept, reason, now)
        return [order_cancel_children(execution, FAILED), *kept]
    event = completion_event(now, turn.output)
    return [FinishExecution("COMPLETED", event, turn.output, hand_over=True)]


def _cleaned_up(
    execution: str, turn: Turn, now: float, ending: tuple[WriteOutbox, FinishExecution]
) -> list[Effect]:
    """Keep the state of a clean-up that failed and write a dead letter for it."""
    children, finish = ending
    if not is_failed_cleanup(turn) or turn.error is None:
        return [children, finish]
    return [
        children,
        *_keeping(execution, finish, turn.kept, _failed_cleanup(turn.cancel, turn.error), now),
    ]


def _keeping(
    execution: str, finish: FinishExecution, kept: bytes | None, reason: str | None, now: float
) -> list[Effect]:
    """Keep the machine with the ending. If its clean-up is unfinished, for which ``reason`` is given, write a dead
    letter. Code that had not begun has nothing to clean up, and leaves no letter.
    """
    if kept is None:
        return [finish]
    ending = replace(finish, context=kept)
    return [ending] if reason is None else [order_letter(execution, reason, now), ending]


def is_failed_cleanup(turn: Turn) -> bool:
    """Return True if a script that was asked to end ended with an error of its own."""
    if not turn.cancel or turn.error is None:
        return False
    if turn.cancel == "cancel":
        return turn.error.code != "CancelledError"
    return turn.error.code != "TimeoutError" or not turn.error.message.startswith(TIMEOUT_MESSAGE)


def _cancelled(
    execution: str, now: float, output: bytes | None, error: ErrorValue | None
) -> tuple[WriteOutbox, FinishExecution]:
    cause = error or ErrorValue("CancelledError", "the execution was cancelled")
    finish = _finish("CANCELLED", "ExecutionCancelled", cause, now, hand_over=False)
    if error is None and output is not None:
        finish = replace(finish, output=output)
    return order_cancel_children(execution, CANCELLED), finish


def _timed_out(execution: str, now: float, error: ErrorValue) -> tuple[WriteOutbox, FinishExecution]:
    return order_cancel_children(execution, TIMED_OUT), failing(error, now, hand_over=False)


def _timeout_error(timeout: float | None) -> ErrorValue:
    limit = f" of {timeout:g} s" if timeout is not None else ""
    return ErrorValue("TimeoutError", f"{TIMEOUT_MESSAGE}{limit}")


def failing(error: ErrorValue, now: float, *, hand_over: bool) -> FinishExecution:
    return _finish("FAILED", "ExecutionFailed", error, now, hand_over=hand_over)


def _finish(
    state: EndState, kind: EventKind, error: ErrorValue, now: float, *, hand_over: bool
) -> FinishExecution:
    """Return the ending. The execution keeps the traceback; its event does not."""
    record = encode_body(error_object(error, traceback=False))
    data = record if error.traceback is None else encode_body(error_object(error))
    event = NewEvent(kind, "", "", now, b'{"error":%b}' % record)
    return FinishExecution(state, event, error=data, hand_over=hand_over)


def error_object(error: ErrorValue, *, traceback: bool = True) -> dict[str, Any]:
    """Return the error object that users see in results."""
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


def fail_script(
    lease: Lease,
    view: MachineView | None,
    error: ErrorValue,
    now: float,
    kept: bytes | None,
    *,
    is_unfinished: bool,
) -> Transition:
    """End the execution without running its machine: a damaged snapshot, a limit. Its machine is kept, and if it has
    something to clean up (``is_unfinished``), a dead letter is written. Refused if its machine has moved on since
    ``view``, or was asked to end.
    """
    effects: list[Effect] = []
    if view is not None:
        effects.append(replace(_unchanged_machine(view, interrupted=False), exact=kept is not None))
    finish = failing(error, now, hand_over=True)
    effects.append(order_cancel_children(lease.execution, FAILED))
    reason = _no_cleanup(error) if is_unfinished else None
    effects += _keeping(lease.execution, finish, kept, reason, now)
    return Transition(
        lease.execution, tuple(effects), (), lease.token, lease.fence, "", lease.live, epoch=lease.epoch
    )


def fail_cleanup(
    lease: Lease, view: MachineView, error: ErrorValue, now: float, unfinished: bytes | None
) -> Transition:
    """Fail a script that was asked to end, and keep what it had not cleaned up. Refused if its machine has moved on
    since ``view``: it may have started what a retry of the kept state would start again.
    """
    is_cancelled = view.cancel == "cancel"
    children, finish = (
        _cancelled(lease.execution, now, None, error)
        if is_cancelled
        else _timed_out(lease.execution, now, error)
    )
    reason = _failed_cleanup(view.cancel, error)
    kept = _keeping(lease.execution, finish, unfinished, reason, now)
    effects = (_unchanged_machine(view), children, *kept)
    return Transition(
        lease.execution, effects, (), lease.token, lease.fence, "", lease.live, epoch=lease.epoch
    )


def _failed_cleanup(cancel: CancelReason, error: ErrorValue) -> str:
    what = "cancelled" if cancel == "cancel" else "timed out"
    return f"the execution was {what} and its clean-up failed: {error.message}"


def _no_cleanup(error: ErrorValue) -> str:
    return f"the execution failed and did not clean up: {error.message}"


def fail_at_start(new: NewExecution, error: ErrorValue, now: float) -> Transition:
    """Create an execution that has failed: its id is reserved already, and it cannot be started."""
    started = NewEvent("ExecutionStarted", "", "", now, b'{"input":%b}' % new.input)
    return Transition(new.id, (CreateExecution(new), failing(error, now, hand_over=False)), (started,))


# -- cancellation and timeout ------------------------------------------------------------------------------------


def cancel_script(execution: str, now: float, reason: str | None) -> Transition:
    """Throw ``CancelledError`` at the script's await.

    The turn that receives it begins the grace, if there is one. A second cancel changes nothing.
    """
    message = f"the execution was cancelled: {reason}" if reason else "the execution was cancelled"
    error = ErrorValue("CancelledError", message)
    finish = _finish("CANCELLED", "ExecutionCancelled", error, now, hand_over=False)
    event = NewEvent("CancelRequested", "", "", now, encode_body({"reason": reason}))
    return Transition(
        execution, (RequestCancel("cancel", event, finish, (order_cancel_children(execution, CANCELLED),)),)
    )


def grace_token(execution: str, due: float) -> NewToken:
    """Return the token that ends a clean-up which takes longer than its workflow allows."""
    return deadline_token(execution, GRACE, due)


def expire_script(lease: Lease, now: float, timeout: float | None) -> Transition:
    """Time out a script whose execution deadline has passed. A clean-up already under way continues."""
    timed_out = _timeout_error(timeout)
    event = NewEvent("CancelRequested", "", "", now, encode_body({"reason": timed_out.message}))
    children, finish = _timed_out(lease.execution, now, timed_out)
    return _by_deadline(lease, RequestCancel("timeout", event, finish, owed=(children,)))


def cut_off(
    lease: Lease, view: MachineView, now: float, grace: float | None, unfinished: bytes | None
) -> Transition:
    """End the execution as requested when the grace of its clean-up has passed, and keep its state for a retry.

    Refused if its machine has moved on meanwhile.
    """
    limit = f" of {grace:g} s" if grace is not None else ""
    what = "cancelled" if view.cancel == "cancel" else "timed out"
    message = (
        f"the execution was {what}; its clean-up did not end within its cancel_grace{limit} and was cut off"
    )
    error = ErrorValue("CLEANUP_CUT_OFF", message, "CleanupCutOff")
    state: EndState = "CANCELLED" if view.cancel == "cancel" else "FAILED"
    kind: EventKind = "ExecutionCancelled" if view.cancel == "cancel" else "ExecutionFailed"
    finish = _finish(state, kind, error, now, hand_over=False)
    children = order_cancel_children(lease.execution, CANCELLED if view.cancel == "cancel" else TIMED_OUT)
    kept = _keeping(lease.execution, finish, unfinished, message, now)
    return _by_deadline(lease, _unchanged_machine(view), children, *kept)


def terminate_script(
    execution: str, view: MachineView | None, now: float, reason: str | None, unfinished: bytes | None
) -> Transition:
    """End the execution at once, without clean-up. Refused if its machine has moved on since ``view``."""
    error = ErrorValue("TERMINATED", termination(reason), "TerminatedError")
    finish = _finish("CANCELLED", "ExecutionCancelled", error, now, hand_over=False)
    effects: list[Effect] = [_unchanged_machine(view)] if view is not None else []
    effects.append(order_cancel_children(execution, TERMINATED))
    had_begun = view is not None and view.interrupted
    what = "its clean-up was cut off" if had_begun else "it did not clean up"
    effects += _keeping(execution, finish, unfinished, f"{error.message}; {what}", now)
    return Transition(execution, tuple(effects))


def termination(reason: str | None) -> str:
    return f"the execution was terminated: {reason}" if reason else "the execution was terminated"


def _unchanged_machine(view: MachineView, *, interrupted: bool = True) -> SaveMachine:
    """Return a save that only checks the version: an ending must not lose what the machine did since it was read.

    What it would save is not written. ``interrupted``: the ending takes a request to end into account.
    """
    return SaveMachine(
        view.version, b"", view.inbox, view.wake, view.reachable, view.line, interrupted=interrupted
    )


def _by_deadline(lease: Lease, *effects: Effect) -> Transition:
    return Transition(
        lease.execution, effects, (), lease.token, lease.fence, "", lease.live, epoch=lease.epoch
    )
